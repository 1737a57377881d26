//! Packing into and unpacking from the caller's buffers, natively and in external32 (MPI 5.0, §5.2 and §5.3).

use super::{committed, get, give};
use crate::prelude::*;
use ironweave_datatype::{RecvLayout, SendLayout};
use std::ffi::CStr;

/// A caller's buffer and the position in it.
struct Place<T> {
    start: *mut u8,
    len: usize,
    position: *mut T,
}

impl<T: ReadCount + WriteCount> Place<T> {
    fn new(start: *const c_void, len: impl ReadCount, position: *mut T) -> Result<Place<T>> {
        let len = crate::count::count("the size of the buffer", len)
            .map_err(|error| error.recoded(MPI_ERR_ARG))?;
        if len > 0 && start.is_null() {
            return Err(fail(MPI_ERR_BUFFER, "the packed buffer is a null pointer"));
        }
        if position.is_null() {
            return Err(super::null("the position"));
        }
        Ok(Place { start: start.cast_mut().cast(), len, position })
    }

    /// Where it stands.
    ///
    /// # Safety
    /// The position is valid.
    unsafe fn position(&self) -> Result<usize> {
        // SAFETY: this function's contract.
        let at = unsafe { *self.position }.wide();
        usize::try_from(at).map_err(|_| fail(MPI_ERR_ARG, format!("the position is {at}")))
    }

    /// The bytes, for writing.
    ///
    /// # Safety
    /// The caller's buffer is as long as it says.
    unsafe fn out<'a>(&self) -> &'a mut [u8] {
        match self.len {
            0 => &mut [],
            // SAFETY: this function's contract.
            len => unsafe { std::slice::from_raw_parts_mut(self.start, len) },
        }
    }

    /// The bytes, for reading.
    ///
    /// # Safety
    /// As `out`.
    unsafe fn bytes<'a>(&self) -> &'a [u8] {
        // SAFETY: this function's contract.
        unsafe { self.out() }
    }
}

/// # Safety
/// The caller's buffers are what count, datatype and size say.
unsafe fn pack<T: ReadCount + WriteCount>(
    data: (*const c_void, i64, MPI_Datatype),
    to: Place<T>,
    external: bool,
) -> Result<()> {
    let (buf, count, datatype) = data;
    let there = committed(datatype)?;
    crate::data::present(buf, count, datatype)?;
    // SAFETY: this function's contract; the layout is gone when this function returns.
    unsafe {
        let layout = SendLayout::new(there, count, buf.cast())?;
        let mut position = to.position()?;
        if external {
            layout.pack_external_at(to.out(), &mut position)?;
        } else {
            layout.pack_at(to.out(), &mut position)?;
        }
        to.position.write(T::narrow(position as i64));
    }
    Ok(())
}

/// # Safety
/// As [`pack`].
unsafe fn unpack<T: ReadCount + WriteCount>(
    from: Place<T>,
    data: (*mut c_void, i64, MPI_Datatype),
    external: bool,
) -> Result<()> {
    let (buf, count, datatype) = data;
    let there = committed(datatype)?;
    crate::data::present(buf, count, datatype)?;
    // SAFETY: this function's contract; the layout is gone when this function returns.
    unsafe {
        let mut layout = RecvLayout::new(there, count, buf.cast())?;
        let mut position = from.position()?;
        if external {
            layout.unpack_external_at(from.bytes(), &mut position)?;
        } else {
            layout.unpack_at(from.bytes(), &mut position)?;
        }
        from.position.write(T::narrow(position as i64));
    }
    Ok(())
}

/// Bytes of so many elements.
fn size(count: i64, datatype: MPI_Datatype, external: bool) -> Result<i64> {
    let count = crate::count::count("count", count)? as i64;
    let there = &get(datatype)?.datatype;
    let size = if external { there.external_size(count) } else { there.size().checked_mul(count) };
    size.ok_or_else(|| crate::data::too_many(count))
}

/// That the representation is external32, the only one there is.
///
/// # Safety
/// The caller's string ends with a zero.
unsafe fn representation(name: *const c_char) -> Result<()> {
    if name.is_null() {
        return Err(super::null("the data representation"));
    }
    // SAFETY: this function's contract.
    match unsafe { CStr::from_ptr(name) } {
        name if name == c"external32" => Ok(()),
        name => {
            let text = format!("there is no data representation {name:?} but \"external32\"");
            Err(fail(MPI_ERR_ARG, text))
        }
    }
}

mpi! {
    fn MPI_Pack / MPI_Pack_c(
        inbuf: *const c_void, incount: Count, datatype: MPI_Datatype, outbuf: *mut c_void, outsize: Count,
        position: *mut Count, comm: MPI_Comm,
    ) on comm {
        crate::comm::get(comm)?;
        // SAFETY: the caller's buffers.
        unsafe { pack((inbuf, incount.wide(), datatype), Place::new(outbuf, outsize, position)?, false) }
    }

    fn MPI_Unpack / MPI_Unpack_c(
        inbuf: *const c_void, insize: Count, position: *mut Count, outbuf: *mut c_void, outcount: Count,
        datatype: MPI_Datatype, comm: MPI_Comm,
    ) on comm {
        crate::comm::get(comm)?;
        // SAFETY: the caller's buffers.
        unsafe { unpack(Place::new(inbuf, insize, position)?, (outbuf, outcount.wide(), datatype), false) }
    }

    fn MPI_Pack_size / MPI_Pack_size_c(
        incount: Count, datatype: MPI_Datatype, comm: MPI_Comm, size_: *mut Count,
    ) on comm {
        crate::comm::get(comm)?;
        let bytes = size(incount.wide(), datatype, false)?;
        // SAFETY: the caller's result.
        unsafe { give(size_, "the size", || Count::narrow(bytes)) }
    }

    fn MPI_Pack_external / MPI_Pack_external_c(
        datarep: *const c_char, inbuf: *const c_void, incount: Count, datatype: MPI_Datatype, outbuf: *mut c_void,
        outsize: Disp, position: *mut Disp,
    ) on none {
        process::check()?;
        // SAFETY: the caller's string and buffers.
        unsafe {
            representation(datarep)?;
            pack((inbuf, incount.wide(), datatype), Place::new(outbuf, outsize, position)?, true)
        }
    }

    fn MPI_Unpack_external / MPI_Unpack_external_c(
        datarep: *const c_char, inbuf: *const c_void, insize: Disp, position: *mut Disp, outbuf: *mut c_void,
        outcount: Count, datatype: MPI_Datatype,
    ) on none {
        process::check()?;
        // SAFETY: the caller's string and buffers.
        unsafe {
            representation(datarep)?;
            unpack(Place::new(inbuf, insize, position)?, (outbuf, outcount.wide(), datatype), true)
        }
    }

    fn MPI_Pack_external_size / MPI_Pack_external_size_c(
        datarep: *const c_char, incount: Count, datatype: MPI_Datatype, size_: *mut Disp,
    ) on none {
        process::check()?;
        // SAFETY: the caller's string and result.
        unsafe {
            representation(datarep)?;
            let bytes = size(incount.wide(), datatype, true)?;
            give(size_, "the size", || Disp::narrow(bytes))
        }
    }
}
