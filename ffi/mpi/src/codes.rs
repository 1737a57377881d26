//! Error classes and codes, and their texts (MPI 5.0, §9.4 and 9.5). Users add classes, codes and texts, and take them away again.

use crate::error::added::{self, Added};
use crate::error::{class_of, class_text, give_string};
use crate::prelude::*;
use std::ffi::CStr;

fn add(class: Option<c_int>) -> c_int {
    let mut all = added::all();
    let code = MPI_ERR_LASTCODE + 1 + all.len() as c_int;
    all.push(Added { class: class.unwrap_or(code), text: String::new(), removed: false });
    code
}

/// Changes an entry of the user's.
fn change(code: c_int, is_class: bool, change: impl FnOnce(&mut Added)) -> Result<()> {
    let what = if is_class { "class" } else { "code" };
    let mut all = added::all();
    let index =
        code.checked_sub(MPI_ERR_LASTCODE + 1).and_then(|index| usize::try_from(index).ok());
    match index.and_then(|index| all.get_mut(index)) {
        Some(there) if !there.removed && (there.class == code || !is_class) => {
            change(there);
            // So that adding and removing again and again takes no more and more room and time.
            while all.pop_if(|last| last.removed).is_some() {}
            Ok(())
        }
        _ => Err(fail(MPI_ERR_ARG, format!("{code} is no error {what} that was added"))),
    }
}

/// What has a text yet is not removed (§9.5).
fn has_no_text(code: c_int) -> Result<()> {
    match added::get(code) {
        Some(there) if !there.text.is_empty() => {
            Err(fail(MPI_ERR_ARG, format!("{code} still has a text")))
        }
        _ => Ok(()),
    }
}

fn exists(code: c_int) -> bool {
    class_text(code).is_some() || added::get(code).is_some()
}

mpi! {
    fn MPI_Error_class(errorcode: c_int, errorclass: *mut c_int) on ever {
        if !exists(errorcode) {
            return Err(fail(MPI_ERR_ARG, format!("{errorcode} is no error code")));
        }
        // SAFETY: the caller's result.
        unsafe { errorclass.write(class_of(errorcode)) };
        Ok(())
    }

    fn MPI_Error_string(errorcode: c_int, string: *mut c_char, resultlen: *mut c_int) on ever {
        let own = added::get(errorcode).map(|added| added.text);
        let text = match (&own, class_text(errorcode)) {
            (Some(own), _) => own.as_str(),
            (None, Some(text)) => text,
            (None, None) => return Err(fail(MPI_ERR_ARG, format!("{errorcode} is no error code"))),
        };
        // SAFETY: the caller's results, as long as the standard says.
        unsafe { give_string(text, string, MPI_MAX_ERROR_STRING as usize, resultlen) };
        Ok(())
    }

    fn MPI_Add_error_class(errorclass: *mut c_int) on ever {
        // SAFETY: the caller's result.
        unsafe { errorclass.write(add(None)) };
        Ok(())
    }

    fn MPI_Add_error_code(errorclass: c_int, errorcode: *mut c_int) on ever {
        if !exists(errorclass) || class_of(errorclass) != errorclass {
            return Err(fail(MPI_ERR_ARG, format!("{errorclass} is no error class")));
        }
        // SAFETY: the caller's result.
        unsafe { errorcode.write(add(Some(errorclass))) };
        Ok(())
    }

    fn MPI_Add_error_string(errorcode: c_int, string: *const c_char) on ever {
        // SAFETY: the caller's string.
        let text = unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned();
        if text.len() >= MPI_MAX_ERROR_STRING as usize {
            let text = format!("a text of {} characters: {} are allowed", text.len(), MPI_MAX_ERROR_STRING - 1);
            return Err(fail(MPI_ERR_ARG, text));
        }
        change(errorcode, false, |there| there.text = text)
    }

    fn MPI_Remove_error_class(errorclass: c_int) on ever {
        let used = added::all().iter().enumerate().any(|(index, there)| {
            let code = MPI_ERR_LASTCODE + 1 + index as c_int;
            !there.removed && there.class == errorclass && code != errorclass
        });
        if used {
            return Err(fail(MPI_ERR_ARG, format!("error class {errorclass} still has codes")));
        }
        has_no_text(errorclass)?;
        change(errorclass, true, |there| there.removed = true)
    }

    fn MPI_Remove_error_code(errorcode: c_int) on ever {
        if class_of(errorcode) == errorcode {
            return Err(fail(MPI_ERR_ARG, format!("{errorcode} is no error code that was added")));
        }
        has_no_text(errorcode)?;
        change(errorcode, false, |there| there.removed = true)
    }

    fn MPI_Remove_error_string(errorcode: c_int) on ever {
        change(errorcode, false, |there| there.text.clear())
    }
}
