//! Cached attributes of datatypes (MPI 5.0, §7.7.4).

use super::get;
use crate::attribute::{self, Kind};
use crate::prelude::*;

mpi! {
    fn MPI_Type_create_keyval(copy: usize, delete: usize, keyval: *mut c_int, extra: *mut c_void) on none {
        // SAFETY: the caller's result.
        unsafe { super::give(keyval, "the key", || attribute::create(Kind::Type, copy, delete, extra)) }
    }

    fn MPI_Type_free_keyval(keyval: *mut c_int) on none {
        // SAFETY: the caller's key.
        unsafe {
            attribute::free(Kind::Type, *keyval)?;
            keyval.write(MPI_KEYVAL_INVALID);
        }
        Ok(())
    }

    fn MPI_Type_set_attr(datatype: MPI_Datatype, keyval: c_int, value: *mut c_void) on none {
        attribute::set(datatype.0, get(datatype)?, Kind::Type, keyval, value)
    }

    fn MPI_Type_get_attr(datatype: MPI_Datatype, keyval: c_int, value: *mut c_void, flag: *mut c_int) on none {
        let found = attribute::get(get(datatype)?, Kind::Type, keyval)?;
        // SAFETY: the caller's results; the value is a pointer to a pointer.
        unsafe {
            flag.write(c_int::from(found.is_some()));
            if let Some(found) = found {
                value.cast::<*mut c_void>().write(found);
            }
        }
        Ok(())
    }

    fn MPI_Type_delete_attr(datatype: MPI_Datatype, keyval: c_int) on none {
        attribute::delete(datatype.0, get(datatype)?, Kind::Type, keyval)
    }
}
