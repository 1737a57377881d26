//! What can be asked of a datatype: sizes, bounds, names, and how it was made (MPI 5.0, §5.1.5 to 5.1.13, §7.8).

use super::{get, give, handle_of};
use crate::error::give_string;
use crate::prelude::*;
use ironweave_datatype::{Combiner, Contents};

/// Gives a lower bound and an extent.
///
/// # Safety
/// Both are null or valid.
unsafe fn bounds<T: WriteCount>(
    (lb, extent): (i64, i64),
    to_lb: *mut T,
    to_extent: *mut T,
) -> Result<()> {
    // SAFETY: this function's contract.
    unsafe {
        give(to_lb, "the lower bound", || T::narrow(lb))?;
        give(to_extent, "the extent", || T::narrow(extent))
    }
}

fn extent(datatype: MPI_Datatype) -> Result<(i64, i64)> {
    get(datatype).map(|there| (there.datatype.lb(), there.datatype.extent()))
}

fn true_extent(datatype: MPI_Datatype) -> Result<(i64, i64)> {
    get(datatype).map(|there| (there.datatype.true_lb(), there.datatype.true_extent()))
}

/// Copies what a caller has room for, which must be all.
///
/// # Safety
/// `to` has room for `max` entries.
unsafe fn fill<T>(
    name: &str,
    values: impl ExactSizeIterator<Item = T>,
    max: i64,
    to: *mut T,
) -> Result<()> {
    let n = values.len();
    if (n as i64) > max {
        return Err(fail(MPI_ERR_ARG, format!("there are {n} {name}, and room for {max}")));
    }
    if n > 0 && to.is_null() {
        return Err(super::null(name));
    }
    for (i, value) in values.enumerate() {
        // SAFETY: this function's contract.
        unsafe { to.add(i).write(value) };
    }
    Ok(())
}

/// The contents, for calls that cannot tell large counts.
fn small(datatype: MPI_Datatype) -> Result<Contents> {
    let contents = get(datatype)?.datatype.contents();
    if contents.large_counts.is_empty() {
        return Ok(contents);
    }
    Err(fail(MPI_ERR_TYPE, "the datatype was made with large counts: ask by the call for those"))
}

/// That the datatype has contents.
fn derived(contents: &Contents) -> Result<()> {
    match contents.combiner {
        Combiner::Named => Err(fail(MPI_ERR_TYPE, "a predefined datatype has no contents")),
        _ => Ok(()),
    }
}

mpi! {
    fn MPI_Type_size / MPI_Type_size_c(datatype: MPI_Datatype, size: *mut Count) on none {
        let bytes = get(datatype)?.datatype.size();
        // SAFETY: the caller's result.
        unsafe { give(size, "the size", || Count::narrow(bytes)) }
    }

    fn MPI_Type_size_x(datatype: MPI_Datatype, size: *mut MPI_Count) on none {
        let bytes = get(datatype)?.datatype.size();
        // SAFETY: the caller's result.
        unsafe { give(size, "the size", || bytes) }
    }

    fn MPI_Type_get_extent / MPI_Type_get_extent_c(
        datatype: MPI_Datatype, lb: *mut Disp, extent_: *mut Disp,
    ) on none {
        // SAFETY: the caller's results.
        unsafe { bounds(extent(datatype)?, lb, extent_) }
    }

    fn MPI_Type_get_extent_x(datatype: MPI_Datatype, lb: *mut MPI_Count, extent_: *mut MPI_Count) on none {
        // SAFETY: the caller's results.
        unsafe { bounds(extent(datatype)?, lb, extent_) }
    }

    fn MPI_Type_get_true_extent / MPI_Type_get_true_extent_c(
        datatype: MPI_Datatype, true_lb: *mut Disp, true_extent_: *mut Disp,
    ) on none {
        // SAFETY: the caller's results.
        unsafe { bounds(true_extent(datatype)?, true_lb, true_extent_) }
    }

    fn MPI_Type_get_true_extent_x(
        datatype: MPI_Datatype, true_lb: *mut MPI_Count, true_extent_: *mut MPI_Count,
    ) on none {
        // SAFETY: the caller's results.
        unsafe { bounds(true_extent(datatype)?, true_lb, true_extent_) }
    }

    fn MPI_Type_get_name(datatype: MPI_Datatype, type_name: *mut c_char, resultlen: *mut c_int) on none {
        process::check()?;
        let name = match datatype {
            MPI_DATATYPE_NULL => "MPI_DATATYPE_NULL".into(),
            _ => get(datatype)?.state().name.clone(),
        };
        // SAFETY: the caller's string has room for MPI_MAX_OBJECT_NAME bytes.
        unsafe { give_string(&name, type_name, MPI_MAX_OBJECT_NAME as usize, resultlen) };
        Ok(())
    }

    fn MPI_Type_set_name(datatype: MPI_Datatype, type_name: *const c_char) on none {
        process::check()?;
        let there = get(datatype)?;
        if type_name.is_null() {
            return Err(super::null("the name"));
        }
        // SAFETY: the caller's string ends with a zero.
        let name = unsafe { std::ffi::CStr::from_ptr(type_name) }.to_string_lossy().into_owned();
        there.state().name = name;
        Ok(())
    }

    fn MPI_Type_get_envelope(
        datatype: MPI_Datatype, num_integers: *mut c_int, num_addresses: *mut c_int, num_datatypes: *mut c_int,
        combiner: *mut c_int,
    ) on none {
        let contents = small(datatype)?;
        // SAFETY: the caller's results.
        unsafe {
            give(num_integers, "the number of integers", || contents.integers.len() as c_int)?;
            give(num_addresses, "the number of addresses", || contents.addresses.len() as c_int)?;
            give(num_datatypes, "the number of datatypes", || contents.datatypes.len() as c_int)?;
            give(combiner, "the combiner", || contents.combiner as c_int)
        }
    }

    fn MPI_Type_get_envelope_c(
        datatype: MPI_Datatype, num_integers: *mut MPI_Count, num_addresses: *mut MPI_Count,
        num_large_counts: *mut MPI_Count, num_datatypes: *mut MPI_Count, combiner: *mut c_int,
    ) on none {
        let contents = get(datatype)?.datatype.contents();
        // SAFETY: the caller's results.
        unsafe {
            give(num_integers, "the number of integers", || contents.integers.len() as i64)?;
            give(num_addresses, "the number of addresses", || contents.addresses.len() as i64)?;
            give(num_large_counts, "the number of large counts", || contents.large_counts.len() as i64)?;
            give(num_datatypes, "the number of datatypes", || contents.datatypes.len() as i64)?;
            give(combiner, "the combiner", || contents.combiner as c_int)
        }
    }

    fn MPI_Type_get_contents(
        datatype: MPI_Datatype, max_integers: c_int, max_addresses: c_int, max_datatypes: c_int,
        array_of_integers: *mut c_int, array_of_addresses: *mut MPI_Aint, array_of_datatypes: *mut MPI_Datatype,
    ) on none {
        let contents = small(datatype)?;
        derived(&contents)?;
        let (integers, addresses) = (contents.integers.iter(), contents.addresses.iter());
        // SAFETY: the caller's arrays are as long as the maxima say.
        unsafe {
            fill("integers", integers.map(|i| *i as c_int), max_integers.wide(), array_of_integers)?;
            fill("addresses", addresses.map(|a| *a as MPI_Aint), max_addresses.wide(), array_of_addresses)?;
            fill("datatypes", contents.datatypes.iter().map(handle_of), max_datatypes.wide(), array_of_datatypes)
        }
    }

    fn MPI_Type_get_contents_c(
        datatype: MPI_Datatype, max_integers: MPI_Count, max_addresses: MPI_Count, max_large_counts: MPI_Count,
        max_datatypes: MPI_Count, array_of_integers: *mut c_int, array_of_addresses: *mut MPI_Aint,
        array_of_large_counts: *mut MPI_Count, array_of_datatypes: *mut MPI_Datatype,
    ) on none {
        let contents = get(datatype)?.datatype.contents();
        derived(&contents)?;
        let (integers, addresses) = (contents.integers.iter(), contents.addresses.iter());
        // SAFETY: the caller's arrays are as long as the maxima say.
        unsafe {
            fill("integers", integers.map(|i| *i as c_int), max_integers, array_of_integers)?;
            fill("addresses", addresses.map(|a| *a as MPI_Aint), max_addresses, array_of_addresses)?;
            fill("large counts", contents.large_counts.iter().copied(), max_large_counts, array_of_large_counts)?;
            fill("datatypes", contents.datatypes.iter().map(handle_of), max_datatypes, array_of_datatypes)
        }
    }
}
