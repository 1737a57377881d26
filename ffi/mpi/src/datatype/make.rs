//! The calls that make, commit, duplicate and free datatypes (MPI 5.0, §5.1).

use super::{adopt, create, get, null};
use crate::attribute;
use crate::prelude::*;
use ironweave_datatype::{Constructor, Datatype, Distribution, Order};
use std::sync::atomic::Ordering;

/// The old type of a call.
fn old(handle: MPI_Datatype) -> Result<Datatype> {
    get(handle).map(|there| there.datatype.clone())
}

/// Whether a call is of large counts.
const fn large<Count>() -> bool {
    size_of::<Count>() == size_of::<MPI_Count>()
}

/// The number of entries that a count announces.
fn entries(name: &str, count: impl ReadCount) -> Result<usize> {
    crate::count::count(name, count)
}

/// Reads an array.
///
/// # Safety
/// It has `len` entries, or is null.
unsafe fn list(name: &str, array: impl Into<Counts>, len: usize) -> Result<Vec<i64>> {
    let array = array.into();
    if len > 0 && array.is_null() {
        return Err(null(name));
    }
    // SAFETY: this function's contract.
    Ok(unsafe { array.to_vec(len) })
}

fn order(order: c_int) -> Result<Order> {
    match order {
        MPI_ORDER_C => Ok(Order::C),
        MPI_ORDER_FORTRAN => Ok(Order::Fortran),
        _ => Err(fail(MPI_ERR_ARG, format!("order {order} is neither C nor Fortran"))),
    }
}

fn distribution(value: i64) -> Result<Distribution> {
    [Distribution::None, Distribution::Block, Distribution::Cyclic]
        .into_iter()
        .find(|known| *known as i64 == value)
        .ok_or_else(|| fail(MPI_ERR_ARG, format!("{value} is no distribution")))
}

fn dimensions(ndims: c_int) -> Result<usize> {
    match usize::try_from(ndims) {
        Ok(dims @ 1..) => Ok(dims),
        _ => Err(fail(MPI_ERR_ARG, format!("the number of dimensions is {ndims}"))),
    }
}

mpi! {
    fn MPI_Type_contiguous / MPI_Type_contiguous_c(
        count: Count, oldtype: MPI_Datatype, newtype: *mut MPI_Datatype,
    ) on none {
        let constructor = Constructor::Contiguous { count: count.wide(), of: old(oldtype)? };
        // SAFETY: the caller's result.
        unsafe { create(constructor, large::<Count>(), newtype) }
    }

    fn MPI_Type_vector / MPI_Type_vector_c(
        count: Count, blocklength: Count, stride: Count, oldtype: MPI_Datatype, newtype: *mut MPI_Datatype,
    ) on none {
        let (count, blocklength, stride) = (count.wide(), blocklength.wide(), stride.wide());
        let constructor = Constructor::Vector { count, blocklength, stride, of: old(oldtype)? };
        // SAFETY: the caller's result.
        unsafe { create(constructor, large::<Count>(), newtype) }
    }

    fn MPI_Type_create_hvector / MPI_Type_create_hvector_c(
        count: Count, blocklength: Count, stride: Disp, oldtype: MPI_Datatype, newtype: *mut MPI_Datatype,
    ) on none {
        let (count, blocklength, stride) = (count.wide(), blocklength.wide(), stride.wide());
        let constructor = Constructor::Hvector { count, blocklength, stride, of: old(oldtype)? };
        // SAFETY: the caller's result.
        unsafe { create(constructor, large::<Count>(), newtype) }
    }

    fn MPI_Type_indexed / MPI_Type_indexed_c(
        count: Count, array_of_blocklengths: *const Count, array_of_displacements: *const Count,
        oldtype: MPI_Datatype, newtype: *mut MPI_Datatype,
    ) on none {
        let n = entries("count", count)?;
        // SAFETY: the caller's arrays have `count` entries.
        let (blocklengths, displacements) = unsafe {
            (list("block lengths", array_of_blocklengths, n)?, list("displacements", array_of_displacements, n)?)
        };
        let constructor = Constructor::Indexed { blocklengths, displacements, of: old(oldtype)? };
        // SAFETY: the caller's result.
        unsafe { create(constructor, large::<Count>(), newtype) }
    }

    fn MPI_Type_create_hindexed / MPI_Type_create_hindexed_c(
        count: Count, array_of_blocklengths: *const Count, array_of_displacements: *const Disp,
        oldtype: MPI_Datatype, newtype: *mut MPI_Datatype,
    ) on none {
        let n = entries("count", count)?;
        // SAFETY: the caller's arrays have `count` entries.
        let (blocklengths, displacements) = unsafe {
            (list("block lengths", array_of_blocklengths, n)?, list("displacements", array_of_displacements, n)?)
        };
        let constructor = Constructor::Hindexed { blocklengths, displacements, of: old(oldtype)? };
        // SAFETY: the caller's result.
        unsafe { create(constructor, large::<Count>(), newtype) }
    }

    fn MPI_Type_create_indexed_block / MPI_Type_create_indexed_block_c(
        count: Count, blocklength: Count, array_of_displacements: *const Count,
        oldtype: MPI_Datatype, newtype: *mut MPI_Datatype,
    ) on none {
        let n = entries("count", count)?;
        // SAFETY: the caller's array has `count` entries.
        let displacements = unsafe { list("displacements", array_of_displacements, n)? };
        let blocklength = blocklength.wide();
        let constructor = Constructor::IndexedBlock { blocklength, displacements, of: old(oldtype)? };
        // SAFETY: the caller's result.
        unsafe { create(constructor, large::<Count>(), newtype) }
    }

    fn MPI_Type_create_hindexed_block / MPI_Type_create_hindexed_block_c(
        count: Count, blocklength: Count, array_of_displacements: *const Disp,
        oldtype: MPI_Datatype, newtype: *mut MPI_Datatype,
    ) on none {
        let n = entries("count", count)?;
        // SAFETY: the caller's array has `count` entries.
        let displacements = unsafe { list("displacements", array_of_displacements, n)? };
        let blocklength = blocklength.wide();
        let constructor = Constructor::HindexedBlock { blocklength, displacements, of: old(oldtype)? };
        // SAFETY: the caller's result.
        unsafe { create(constructor, large::<Count>(), newtype) }
    }

    fn MPI_Type_create_struct / MPI_Type_create_struct_c(
        count: Count, array_of_blocklengths: *const Count, array_of_displacements: *const Disp,
        array_of_types: *const MPI_Datatype, newtype: *mut MPI_Datatype,
    ) on none {
        let n = entries("count", count)?;
        // SAFETY: the caller's arrays have `count` entries.
        let (blocklengths, displacements) = unsafe {
            (list("block lengths", array_of_blocklengths, n)?, list("displacements", array_of_displacements, n)?)
        };
        if n > 0 && array_of_types.is_null() {
            return Err(null("datatypes"));
        }
        // SAFETY: as above.
        let types = (0..n).map(|i| old(unsafe { *array_of_types.add(i) })).collect::<Result<_>>()?;
        let constructor = Constructor::Struct { blocklengths, displacements, types };
        // SAFETY: the caller's result.
        unsafe { create(constructor, large::<Count>(), newtype) }
    }

    fn MPI_Type_create_resized / MPI_Type_create_resized_c(
        oldtype: MPI_Datatype, lb: Disp, extent: Disp, newtype: *mut MPI_Datatype,
    ) on none {
        let constructor = Constructor::Resized { lb: lb.wide(), extent: extent.wide(), of: old(oldtype)? };
        // SAFETY: the caller's result.
        unsafe { create(constructor, large::<Count>(), newtype) }
    }

    fn MPI_Type_create_subarray / MPI_Type_create_subarray_c(
        ndims: c_int, array_of_sizes: *const Count, array_of_subsizes: *const Count, array_of_starts: *const Count,
        order_: c_int, oldtype: MPI_Datatype, newtype: *mut MPI_Datatype,
    ) on none {
        let n = dimensions(ndims)?;
        // SAFETY: the caller's arrays have `ndims` entries.
        let (sizes, subsizes, starts) = unsafe {
            (list("sizes", array_of_sizes, n)?, list("subsizes", array_of_subsizes, n)?, list("starts", array_of_starts, n)?)
        };
        let constructor =
            Constructor::Subarray { sizes, subsizes, starts, order: order(order_)?, of: old(oldtype)? };
        // SAFETY: the caller's result.
        unsafe { create(constructor, large::<Count>(), newtype) }
    }

    fn MPI_Type_create_darray / MPI_Type_create_darray_c(
        size: c_int, rank: c_int, ndims: c_int, array_of_gsizes: *const Count, array_of_distribs: *const c_int,
        array_of_dargs: *const c_int, array_of_psizes: *const c_int, order_: c_int, oldtype: MPI_Datatype,
        newtype: *mut MPI_Datatype,
    ) on none {
        let n = dimensions(ndims)?;
        // SAFETY: the caller's arrays have `ndims` entries.
        let (gsizes, distributions, arguments, psizes) = unsafe {
            (
                list("global sizes", array_of_gsizes, n)?,
                list("distributions", array_of_distribs, n)?,
                list("distribution arguments", array_of_dargs, n)?,
                list("process grid", array_of_psizes, n)?,
            )
        };
        let constructor = Constructor::Darray {
            size: size.wide(),
            rank: rank.wide(),
            gsizes,
            distributions: distributions.into_iter().map(distribution).collect::<Result<_>>()?,
            arguments,
            psizes,
            order: order(order_)?,
            of: old(oldtype)?,
        };
        // SAFETY: the caller's result.
        unsafe { create(constructor, large::<Count>(), newtype) }
    }

    fn MPI_Type_commit(datatype: *mut MPI_Datatype) on none {
        process::check()?;
        if datatype.is_null() {
            return Err(null("the datatype"));
        }
        // SAFETY: the caller's handle. Compiled when it was made, it needs nothing more.
        get(unsafe { *datatype })?.committed.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn MPI_Type_dup(oldtype: MPI_Datatype, newtype: *mut MPI_Datatype) on none {
        process::check()?;
        let there = get(oldtype)?;
        let duplicate = Datatype::new(Constructor::Dup(there.datatype.clone()))?;
        let committed = there.committed.load(Ordering::Relaxed);
        let copied = attribute::copied(oldtype.0, there)?;
        let give = || {
            let handle = adopt(duplicate, committed);
            if let Ok(new) = get(handle) {
                new.state().attributes = copied;
            }
            handle
        };
        // SAFETY: the caller's result.
        unsafe { super::give(newtype, "the new datatype", give) }
    }

    fn MPI_Type_free(datatype: *mut MPI_Datatype) on none {
        process::check()?;
        if datatype.is_null() {
            return Err(null("the datatype"));
        }
        // SAFETY: the caller's handle. Operations under way have references of their own.
        let handle = unsafe { *datatype };
        let there = get(handle)?;
        if there.is_permanent() {
            return Err(fail(MPI_ERR_TYPE, format!("{:#x} is predefined and cannot be freed", handle.0)));
        }
        attribute::clear(handle.0, there)?;
        super::TYPES.remove(handle.0);
        // SAFETY: as above.
        unsafe { datatype.write(MPI_DATATYPE_NULL) };
        Ok(())
    }
}
