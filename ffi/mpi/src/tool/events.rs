//! Events of the tool interface (MPI 5.0, §15.3.8): there are none, and no sources of them. Whoever asks for one hears that its number,
//! its name or its handle is none.

use super::{check, put, tool};
use crate::prelude::*;

fn no_number(at: c_int) -> Result<()> {
    check()?;
    Err(fail(MPI_T_ERR_INVALID_INDEX, format!("there is no number {at}: there are no events")))
}

fn no_handle() -> Result<()> {
    check()?;
    Err(fail(MPI_T_ERR_INVALID_HANDLE, "no such handle: there are no events"))
}

mpi! {
    fn MPI_T_event_get_num(num_events: *mut c_int) on tool {
        check()?;
        // SAFETY: the caller's result.
        unsafe { put(num_events, 0) };
        Ok(())
    }

    fn MPI_T_event_get_index(name: *const c_char, _event_index: *mut c_int) on tool {
        check()?;
        // SAFETY: the caller's string.
        let name = unsafe { super::name(name)? };
        Err(fail(MPI_T_ERR_INVALID_NAME, format!("there is no event {name}")))
    }

    fn MPI_T_event_get_info(event_index: c_int, _name: *mut c_char, _name_len: *mut c_int, _verbosity: *mut c_int, _datatypes: *mut MPI_Datatype, _displacements: *mut MPI_Aint, _num_elements: *mut c_int, _enumtype: *mut usize, _info: *mut MPI_Info, _desc: *mut c_char, _desc_len: *mut c_int, _bind: *mut c_int) on tool {
        no_number(event_index)
    }

    fn MPI_T_event_handle_alloc(event_index: c_int, _object: *mut c_void, _info: MPI_Info, _registration: *mut usize) on tool {
        no_number(event_index)
    }

    fn MPI_T_event_handle_free(_registration: usize, _user_data: *mut c_void, _callback: usize) on tool {
        no_handle()
    }

    fn MPI_T_event_handle_get_info(_registration: usize, _info_used: *mut MPI_Info) on tool {
        no_handle()
    }

    fn MPI_T_event_handle_set_info(_registration: usize, _info: MPI_Info) on tool {
        no_handle()
    }

    fn MPI_T_event_register_callback(_registration: usize, _safety: c_int, _info: MPI_Info, _user_data: *mut c_void, _callback: usize) on tool {
        no_handle()
    }

    fn MPI_T_event_callback_get_info(_registration: usize, _safety: c_int, _info_used: *mut MPI_Info) on tool {
        no_handle()
    }

    fn MPI_T_event_callback_set_info(_registration: usize, _safety: c_int, _info: MPI_Info) on tool {
        no_handle()
    }

    fn MPI_T_event_set_dropped_handler(_registration: usize, _callback: usize) on tool {
        no_handle()
    }

    fn MPI_T_event_read(_instance: usize, _element_index: c_int, _buffer: *mut c_void) on tool {
        no_handle()
    }

    fn MPI_T_event_copy(_instance: usize, _buffer: *mut c_void) on tool {
        no_handle()
    }

    fn MPI_T_event_get_timestamp(_instance: usize, _timestamp: *mut MPI_Count) on tool {
        no_handle()
    }

    fn MPI_T_event_get_source(_instance: usize, _source_index: *mut c_int) on tool {
        no_handle()
    }

    fn MPI_T_source_get_num(num_sources: *mut c_int) on tool {
        check()?;
        // SAFETY: the caller's result.
        unsafe { put(num_sources, 0) };
        Ok(())
    }

    fn MPI_T_source_get_info(source_index: c_int, _name: *mut c_char, _name_len: *mut c_int, _desc: *mut c_char, _desc_len: *mut c_int, _ordering: *mut c_int, _ticks_per_second: *mut MPI_Count, _max_ticks: *mut MPI_Count, _info: *mut MPI_Info) on tool {
        no_number(source_index)
    }

    fn MPI_T_source_get_timestamp(source_index: c_int, _timestamp: *mut MPI_Count) on tool {
        no_number(source_index)
    }
}
