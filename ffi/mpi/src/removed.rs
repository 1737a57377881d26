//! Functions that MPI 3.0 removed, for programs that were written before: their successors under the old names. Errors
//! name the successor.

use crate::prelude::*;

unsafe extern "C" {
    fn PMPI_Get_address(location: *const c_void, address: *mut MPI_Aint) -> c_int;
    fn PMPI_Type_create_hvector(
        count: c_int,
        length: c_int,
        stride: MPI_Aint,
        old: MPI_Datatype,
        new: *mut MPI_Datatype,
    ) -> c_int;
    fn PMPI_Type_create_hindexed(
        count: c_int,
        lengths: *const c_int,
        displacements: *const MPI_Aint,
        old: MPI_Datatype,
        new: *mut MPI_Datatype,
    ) -> c_int;
    fn PMPI_Type_create_struct(
        count: c_int,
        lengths: *const c_int,
        displacements: *const MPI_Aint,
        types: *const MPI_Datatype,
        new: *mut MPI_Datatype,
    ) -> c_int;
    fn PMPI_Type_get_extent(
        datatype: MPI_Datatype,
        lb: *mut MPI_Aint,
        extent: *mut MPI_Aint,
    ) -> c_int;
}

macro_rules! renamed {
    ($($name:ident $profiled:literal ($($arg:ident: $ty:ty),*) $body:block)*) => {$(
        const _: () = {
            unsafe fn call($($arg: $ty),*) -> c_int {
                // SAFETY: the caller's promise is what the successor asks for.
                unsafe { $body }
            }

            #[unsafe(export_name = stringify!($name))]
            unsafe extern "C" fn plain($($arg: $ty),*) -> c_int {
                // SAFETY: the caller's promise.
                unsafe { call($($arg),*) }
            }

            #[unsafe(export_name = $profiled)]
            unsafe extern "C" fn profiled($($arg: $ty),*) -> c_int {
                // SAFETY: the caller's promise.
                unsafe { call($($arg),*) }
            }
        };
    )*};
}

renamed! {
    MPI_Address "PMPI_Address" (location: *const c_void, address: *mut MPI_Aint) {
        PMPI_Get_address(location, address)
    }
    MPI_Type_hvector "PMPI_Type_hvector" (count: c_int, length: c_int, stride: MPI_Aint, old: MPI_Datatype, new: *mut MPI_Datatype) {
        PMPI_Type_create_hvector(count, length, stride, old, new)
    }
    MPI_Type_hindexed "PMPI_Type_hindexed" (count: c_int, lengths: *const c_int, displacements: *const MPI_Aint, old: MPI_Datatype, new: *mut MPI_Datatype) {
        PMPI_Type_create_hindexed(count, lengths, displacements, old, new)
    }
    MPI_Type_struct "PMPI_Type_struct" (count: c_int, lengths: *const c_int, displacements: *const MPI_Aint, types: *const MPI_Datatype, new: *mut MPI_Datatype) {
        PMPI_Type_create_struct(count, lengths, displacements, types, new)
    }
    MPI_Type_extent "PMPI_Type_extent" (datatype: MPI_Datatype, extent: *mut MPI_Aint) {
        let mut lb = 0;
        PMPI_Type_get_extent(datatype, &raw mut lb, extent)
    }
    MPI_Type_lb "PMPI_Type_lb" (datatype: MPI_Datatype, displacement: *mut MPI_Aint) {
        let mut extent = 0;
        PMPI_Type_get_extent(datatype, displacement, &raw mut extent)
    }
    MPI_Type_ub "PMPI_Type_ub" (datatype: MPI_Datatype, displacement: *mut MPI_Aint) {
        let mut extent = 0;
        let code = PMPI_Type_get_extent(datatype, displacement, &raw mut extent);
        if code == MPI_SUCCESS {
            *displacement += extent;
        }
        code
    }
}
