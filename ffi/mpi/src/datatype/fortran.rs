//! Datatypes chosen by what they can hold: Fortran's kinds (MPI 5.0, §19.1.9) and pairs of a value and an index (§6.9.4).
//!
//! Datatypes by precision and range are predefined without a name: asked again, the same handle comes back, and it cannot be freed.

use super::{TYPES, Type, get, give, unnamed};
use crate::prelude::*;
use ironweave_datatype::{Basic, Constructor, Datatype};

/// The predefined datatype without a name that is asked for.
fn kind(constructor: Constructor) -> Result<MPI_Datatype> {
    process::check()?;
    let datatype = Datatype::new(constructor)?;
    let wanted = datatype.contents();
    let mut unnamed = unnamed();
    let known = unnamed.iter().find(|(known, _)| {
        let known = known.contents();
        (known.combiner, &known.integers) == (wanted.combiner, &wanted.integers)
    });
    if let Some((_, handle)) = known {
        return Ok(*handle);
    }
    let there = Type::new(datatype.clone(), true, true);
    let handle = MPI_Datatype(TYPES.insert(Box::new(there)));
    unnamed.push((datatype, handle));
    Ok(handle)
}

/// The datatype of a class with this size.
fn sized(class: c_int, size: c_int) -> Option<Basic> {
    Some(match (class, size) {
        (MPI_TYPECLASS_INTEGER, 1) => Basic::Integer1,
        (MPI_TYPECLASS_INTEGER, 2) => Basic::Integer2,
        (MPI_TYPECLASS_INTEGER, 4) => Basic::Integer4,
        (MPI_TYPECLASS_INTEGER, 8) => Basic::Integer8,
        (MPI_TYPECLASS_INTEGER, 16) => Basic::Integer16,
        (MPI_TYPECLASS_REAL, 2) => Basic::Real2,
        (MPI_TYPECLASS_REAL, 4) => Basic::Real4,
        (MPI_TYPECLASS_REAL, 8) => Basic::Real8,
        (MPI_TYPECLASS_REAL, 16) => Basic::Real16,
        (MPI_TYPECLASS_COMPLEX, 4) => Basic::Complex4,
        (MPI_TYPECLASS_COMPLEX, 8) => Basic::Complex8,
        (MPI_TYPECLASS_COMPLEX, 16) => Basic::Complex16,
        (MPI_TYPECLASS_COMPLEX, 32) => Basic::Complex32,
        _ => return None,
    })
}

fn handle(basic: Basic) -> MPI_Datatype {
    MPI_Datatype(usize::from(basic.abi()))
}

mpi! {
    fn MPI_Type_create_f90_real(p: c_int, r: c_int, newtype: *mut MPI_Datatype) on none {
        let found = kind(Constructor::F90Real { precision: p.wide(), range: r.wide() })?;
        // SAFETY: the caller's result.
        unsafe { give(newtype, "the new datatype", || found) }
    }

    fn MPI_Type_create_f90_complex(p: c_int, r: c_int, newtype: *mut MPI_Datatype) on none {
        let found = kind(Constructor::F90Complex { precision: p.wide(), range: r.wide() })?;
        // SAFETY: the caller's result.
        unsafe { give(newtype, "the new datatype", || found) }
    }

    fn MPI_Type_create_f90_integer(r: c_int, newtype: *mut MPI_Datatype) on none {
        let found = kind(Constructor::F90Integer { range: r.wide() })?;
        // SAFETY: the caller's result.
        unsafe { give(newtype, "the new datatype", || found) }
    }

    fn MPI_Type_match_size(typeclass: c_int, size: c_int, datatype: *mut MPI_Datatype) on none {
        let found = sized(typeclass, size);
        let found = found.ok_or_else(|| {
            fail(MPI_ERR_ARG, format!("no datatype of class {typeclass} has {size} bytes"))
        })?;
        // SAFETY: the caller's result.
        unsafe { give(datatype, "the datatype", || handle(found)) }
    }

    fn MPI_Type_get_value_index(
        value_type: MPI_Datatype, index_type: MPI_Datatype, pair_type: *mut MPI_Datatype,
    ) on none {
        let basic = |handle| get(handle).map(|there| there.datatype.basic());
        let pair = match (basic(value_type)?, basic(index_type)?) {
            (Some(value), Some(index)) => Basic::pair_of(value, index),
            _ => None,
        };
        // SAFETY: the caller's result.
        unsafe { give(pair_type, "the datatype", || pair.map_or(MPI_DATATYPE_NULL, handle)) }
    }
}
