//! How much a message was, in elements (MPI 5.0, §3.2.5, §5.1.11, §13.3), and addresses as numbers (§5.1.5).

use super::{get, give};
use crate::prelude::*;

/// Elements of `datatype` in a message, or `MPI_UNDEFINED`.
fn count(status: *const MPI_Status, datatype: MPI_Datatype) -> Result<i64> {
    let bytes = length(status)?;
    let count = match crate::data::predefined_size(datatype) {
        Some(size) if bytes % size as i64 == 0 => Some(bytes / size as i64),
        Some(_) => None,
        None => get(datatype)?.datatype.count_in(bytes),
    };
    Ok(count.unwrap_or(i64::from(MPI_UNDEFINED)))
}

/// Basic elements in a message of `datatype`, or `MPI_UNDEFINED`.
fn elements(status: *const MPI_Status, datatype: MPI_Datatype) -> Result<i64> {
    let bytes = length(status)?;
    let elements = get(datatype)?.datatype.signature().elements_in(bytes);
    Ok(elements.unwrap_or(i64::from(MPI_UNDEFINED)))
}

/// The length of a message in bytes.
fn length(status: *const MPI_Status) -> Result<i64> {
    if status.is_null() {
        return Err(super::null("the status"));
    }
    // SAFETY: the caller's status.
    Ok(unsafe { (*status).bytes() } as i64)
}

/// Makes a status tell `count` basic elements.
fn set(status: *mut MPI_Status, datatype: MPI_Datatype, count: i64) -> Result<()> {
    crate::count::count("count", count)?;
    if status.is_null() {
        return Err(super::null("the status"));
    }
    let bytes = get(datatype)?.datatype.signature().bytes_of(count);
    let bytes =
        bytes.ok_or_else(|| fail(MPI_ERR_COUNT, format!("{count} elements are too many")))?;
    // SAFETY: the caller's status.
    unsafe { (*status).set_bytes(bytes as u64) };
    Ok(())
}

mpi! {
    fn MPI_Get_count / MPI_Get_count_c(
        status: *const MPI_Status, datatype: MPI_Datatype, count_: *mut Count,
    ) on none {
        let n = count(status, datatype)?;
        // SAFETY: the caller's result.
        unsafe { give(count_, "the count", || Count::narrow(n)) }
    }

    fn MPI_Get_elements / MPI_Get_elements_c(
        status: *const MPI_Status, datatype: MPI_Datatype, count: *mut Count,
    ) on none {
        let n = elements(status, datatype)?;
        // SAFETY: the caller's result.
        unsafe { give(count, "the count", || Count::narrow(n)) }
    }

    fn MPI_Get_elements_x(status: *const MPI_Status, datatype: MPI_Datatype, count: *mut MPI_Count) on none {
        let n = elements(status, datatype)?;
        // SAFETY: the caller's result.
        unsafe { give(count, "the count", || n) }
    }

    fn MPI_Status_set_elements / MPI_Status_set_elements_c(
        status: *mut MPI_Status, datatype: MPI_Datatype, count: Count,
    ) on ever {
        set(status, datatype, count.wide())
    }

    fn MPI_Status_set_elements_x(status: *mut MPI_Status, datatype: MPI_Datatype, count: MPI_Count) on ever {
        set(status, datatype, count)
    }

    fn MPI_Get_address(location: *const c_void, address: *mut MPI_Aint) on none {
        // SAFETY: the caller's result. Exposed: `MPI_BOTTOM` and such addresses make a pointer again.
        unsafe { give(address, "the address", || location.expose_provenance() as MPI_Aint) }
    }
}

macro_rules! sums {
    ($($name:ident = $method:ident;)*) => {$(
        const _: () = {
            #[unsafe(export_name = stringify!($name))]
            extern "C" fn plain(a: MPI_Aint, b: MPI_Aint) -> MPI_Aint {
                a.$method(b)
            }

            #[unsafe(export_name = concat!("P", stringify!($name)))]
            extern "C" fn profiled(a: MPI_Aint, b: MPI_Aint) -> MPI_Aint {
                a.$method(b)
            }
        };
    )*};
}

sums! {
    MPI_Aint_add = wrapping_add;
    MPI_Aint_diff = wrapping_sub;
}
