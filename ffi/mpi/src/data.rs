//! Buffers: an address, a count and a datatype become a payload to send or a buffer to receive into.
//!
//! Predefined datatypes are contiguous, and their sizes are a table by handle: no lookup, no reference count. Derived ones are
//! looked up; those without gaps are memory in one piece too, the others a layout that the engine packs and unpacks.

use crate::abi::*;
use crate::datatype;
use crate::error::{Fail, Result, fail};
use ironweave_btl::memory::{RecvRegion, SendRegion};
use ironweave_datatype::{Datatype, RecvLayout, SendLayout, Shape};
use ironweave_pml::ob1::{Buffer, Payload};
use std::ffi::c_void;
use std::sync::Arc;

const FIRST: usize = MPI_DATATYPE_NULL.0;

/// Bytes of predefined datatypes that have no gaps, by the low byte of their handles; 0 for all others.
static SIZES: [u8; 256] = sizes();

const fn sizes() -> [u8; 256] {
    let table: &[(MPI_Datatype, u8)] = &[
        (MPI_AINT, 8),
        (MPI_COUNT, 8),
        (MPI_OFFSET, 8),
        (MPI_PACKED, 1),
        (MPI_SHORT, 2),
        (MPI_INT, 4),
        (MPI_LONG, 8),
        (MPI_LONG_LONG, 8),
        (MPI_UNSIGNED_SHORT, 2),
        (MPI_UNSIGNED, 4),
        (MPI_UNSIGNED_LONG, 8),
        (MPI_UNSIGNED_LONG_LONG, 8),
        (MPI_FLOAT, 4),
        (MPI_C_FLOAT_COMPLEX, 8),
        (MPI_CXX_FLOAT_COMPLEX, 8),
        (MPI_DOUBLE, 8),
        (MPI_C_DOUBLE_COMPLEX, 16),
        (MPI_CXX_DOUBLE_COMPLEX, 16),
        (MPI_LOGICAL, 4),
        (MPI_INTEGER, 4),
        (MPI_REAL, 4),
        (MPI_COMPLEX, 8),
        (MPI_DOUBLE_PRECISION, 8),
        (MPI_DOUBLE_COMPLEX, 16),
        (MPI_CHARACTER, 1),
        (MPI_LONG_DOUBLE, size_of::<LongDouble>() as u8),
        (MPI_C_LONG_DOUBLE_COMPLEX, 2 * size_of::<LongDouble>() as u8),
        (MPI_CXX_LONG_DOUBLE_COMPLEX, 2 * size_of::<LongDouble>() as u8),
        (MPI_FLOAT_INT, 8),
        (MPI_2INT, 8),
        (MPI_2REAL, 8),
        (MPI_2DOUBLE_PRECISION, 16),
        (MPI_2INTEGER, 8),
        (MPI_C_BOOL, 1),
        (MPI_CXX_BOOL, 1),
        (MPI_WCHAR, 4),
        (MPI_INT8_T, 1),
        (MPI_UINT8_T, 1),
        (MPI_CHAR, 1),
        (MPI_SIGNED_CHAR, 1),
        (MPI_UNSIGNED_CHAR, 1),
        (MPI_BYTE, 1),
        (MPI_INT16_T, 2),
        (MPI_UINT16_T, 2),
        (MPI_INT32_T, 4),
        (MPI_UINT32_T, 4),
        (MPI_INT64_T, 8),
        (MPI_UINT64_T, 8),
        (MPI_LOGICAL1, 1),
        (MPI_INTEGER1, 1),
        (MPI_LOGICAL2, 2),
        (MPI_INTEGER2, 2),
        (MPI_REAL2, 2),
        (MPI_LOGICAL4, 4),
        (MPI_INTEGER4, 4),
        (MPI_REAL4, 4),
        (MPI_COMPLEX4, 4),
        (MPI_LOGICAL8, 8),
        (MPI_INTEGER8, 8),
        (MPI_REAL8, 8),
        (MPI_COMPLEX8, 8),
        (MPI_LOGICAL16, 16),
        (MPI_INTEGER16, 16),
        (MPI_REAL16, 16),
        (MPI_COMPLEX16, 16),
        (MPI_COMPLEX32, 32),
    ];
    let mut sizes = [0; 256];
    let mut i = 0;
    while i < table.len() {
        sizes[table[i].0.0 - FIRST] = table[i].1;
        i += 1;
    }
    sizes
}

/// Stands for `long double`, of which only the size matters.
#[repr(C, align(16))]
struct LongDouble([u8; 16]);

/// Bytes of a predefined datatype without gaps.
#[inline(always)]
#[must_use]
pub fn predefined_size(datatype: MPI_Datatype) -> Option<usize> {
    let index = datatype.0.wrapping_sub(FIRST);
    match SIZES.get(index) {
        Some(&size) if size > 0 => Some(usize::from(size)),
        _ => None,
    }
}

/// Where a message's data is.
pub enum Data {
    /// In one piece.
    Contiguous(*mut u8, usize),
    /// Wherever the datatype says.
    Scattered(&'static Datatype),
}

/// Looks up what a caller describes.
///
/// # Errors
/// `MPI_ERR_COUNT`, `MPI_ERR_TYPE`, `MPI_ERR_BUFFER`.
#[inline(always)]
pub fn describe(buf: *const c_void, count: i64, datatype: MPI_Datatype) -> Result<Data> {
    match plain(buf, count, datatype) {
        Some(data) => Ok(data),
        None => rare(buf, count, datatype),
    }
}

/// As [`describe`], for predefined datatypes without gaps and good arguments.
#[inline(always)]
#[must_use]
pub fn plain(buf: *const c_void, count: i64, datatype: MPI_Datatype) -> Option<Data> {
    let size = predefined_size(datatype)?;
    let good = count >= 0 && (is_memory(buf) || count == 0);
    let len = (count as usize).checked_mul(size)?;
    good.then(|| Data::Contiguous(buf.cast_mut().cast(), len))
}

#[cold]
fn rare(buf: *const c_void, count: i64, datatype: MPI_Datatype) -> Result<Data> {
    if count < 0 {
        return Err(fail(MPI_ERR_COUNT, format!("count is {count}, which is negative")));
    }
    if count == 0 && datatype == MPI_DATATYPE_NULL {
        // Not in the standard, but programs do it where nothing is sent, and others let them.
        return Ok(Data::Contiguous(buf.cast_mut().cast(), 0));
    }
    present(buf, count, datatype)?;
    let there = datatype::committed(datatype)?;
    // Addresses may be absolute in derived ones: a null pointer is MPI_BOTTOM.
    match there.is_dense(count) {
        Some(offset) => {
            let len = there.size().checked_mul(count).and_then(|len| usize::try_from(len).ok());
            Ok(Data::Contiguous(address(buf, offset), len.ok_or_else(|| too_many(count))?))
        }
        None => Ok(Data::Scattered(there)),
    }
}

/// The address `offset` bytes from a buffer's, or from address 0 for `MPI_BOTTOM`.
fn address(buf: *const c_void, offset: i64) -> *mut u8 {
    match buf.is_null() {
        true => std::ptr::with_exposed_provenance_mut(offset as usize),
        false => buf.cast_mut().cast::<u8>().wrapping_offset(offset as isize),
    }
}

/// That there is a buffer where elements are. A null pointer is `MPI_BOTTOM`, at which only derived datatypes have any.
///
/// # Errors
/// `MPI_ERR_BUFFER`, `MPI_ERR_TYPE`.
#[inline]
pub fn present(buf: *const c_void, count: i64, datatype: MPI_Datatype) -> Result<()> {
    if is_memory(buf) || count <= 0 {
        return Ok(());
    }
    if !buf.is_null() {
        return Err(fail(MPI_ERR_BUFFER, "MPI_IN_PLACE is not allowed here"));
    }
    if predefined_size(datatype).is_some() || datatype::get(datatype)?.datatype.is_named() {
        return Err(fail(MPI_ERR_BUFFER, "the buffer is a null pointer, and the count is not 0"));
    }
    Ok(())
}

/// Whether it is an address, and not `MPI_BOTTOM` or `MPI_IN_PLACE`.
#[inline(always)]
fn is_memory(buf: *const c_void) -> bool {
    buf.addr() > MPI_IN_PLACE
}

/// So many bytes have no address.
#[cold]
pub fn too_many(count: impl std::fmt::Display) -> Fail {
    fail(MPI_ERR_COUNT, format!("{count} elements have too many bytes"))
}

/// The bytes of so many elements.
///
/// # Errors
/// `MPI_ERR_COUNT`.
#[inline(always)]
pub fn bytes(count: usize, size: usize) -> Result<usize> {
    match count.checked_mul(size) {
        Some(len) if isize::try_from(len).is_ok() => Ok(len),
        _ => Err(too_many(count)),
    }
}

/// What to send.
///
/// # Errors
/// As [`describe`].
///
/// # Safety
/// The caller's buffer holds what count and datatype say, and stays unwritten until the payload is gone.
#[inline(always)]
pub unsafe fn payload(buf: *const c_void, count: i64, datatype: MPI_Datatype) -> Result<Payload> {
    match describe(buf, count, datatype)? {
        Data::Contiguous(start, len) => {
            // SAFETY: this function's contract.
            let region = unsafe { SendRegion::new(start, len) };
            Ok(Payload::Contiguous(region))
        }
        Data::Scattered(there) => {
            // SAFETY: this function's contract.
            let layout = unsafe { SendLayout::new(there, count, buf.cast())? };
            Ok(Payload::Convertor(Arc::new(layout)))
        }
    }
}

/// Where to receive.
///
/// # Errors
/// As [`describe`].
///
/// # Safety
/// The caller's buffer has room for what count and datatype say, and nobody uses it until the buffer is gone.
#[inline(always)]
pub unsafe fn buffer(buf: *mut c_void, count: i64, datatype: MPI_Datatype) -> Result<Buffer> {
    match describe(buf, count, datatype)? {
        Data::Contiguous(start, len) => {
            // SAFETY: this function's contract.
            let region = unsafe { RecvRegion::new(start, len) };
            Ok(Buffer::Contiguous(region))
        }
        Data::Scattered(there) => {
            // SAFETY: this function's contract.
            let layout = unsafe { RecvLayout::new(there, count, buf.cast())? };
            Ok(Buffer::Convertor(Box::new(layout)))
        }
    }
}

/// A datatype as one element of an array.
#[derive(Clone, Copy, Debug)]
pub struct Element {
    /// Bytes of data.
    pub size: usize,
    /// Where its elements start from each other.
    pub extent: isize,
}

/// What a datatype is as an element.
///
/// # Errors
/// `MPI_ERR_TYPE`.
#[inline]
pub fn element(datatype: MPI_Datatype) -> Result<Element> {
    match predefined_size(datatype) {
        Some(size) => Ok(Element { size, extent: size as isize }),
        None => datatype::committed(datatype)
            .map(|there| Element { size: there.size() as usize, extent: there.extent() as isize }),
    }
}

/// The piece that `count` elements are, as its offset from the buffer's address and its length, when they are one.
///
/// # Errors
/// `MPI_ERR_TYPE`.
#[inline]
pub fn piece(count: usize, datatype: MPI_Datatype) -> Result<Option<(isize, usize)>> {
    if let Some(size) = predefined_size(datatype) {
        return Ok(Some((0, bytes(count, size)?)));
    }
    let there = datatype::committed(datatype)?;
    let Some(offset) = there.is_dense(count as i64) else { return Ok(None) };
    Ok(Some((offset as isize, Shape::new(there, count as i64)?.len())))
}

/// Appends packed elements to `out`.
///
/// # Errors
/// As [`describe`].
///
/// # Safety
/// As [`payload`].
pub unsafe fn pack(
    buf: *const c_void,
    count: usize,
    datatype: MPI_Datatype,
    out: &mut Vec<u8>,
) -> Result<()> {
    // SAFETY: this function's contract.
    let payload = unsafe { payload(buf, count as i64, datatype)? };
    let start = out.len();
    out.resize(start + payload.len(), 0);
    payload.pack(0, &mut out[start..]);
    Ok(())
}

/// Unpacks elements.
///
/// # Errors
/// As [`describe`].
///
/// # Safety
/// As [`buffer`].
pub unsafe fn unpack(
    packed: &[u8],
    buf: *mut c_void,
    count: usize,
    datatype: MPI_Datatype,
) -> Result<()> {
    // SAFETY: this function's contract.
    let mut into = unsafe { buffer(buf, count as i64, datatype)? };
    into.unpack(0, &packed[..packed.len().min(into.capacity())]);
    Ok(())
}

/// The bytes that `count` elements span, gaps included: the offset of the first from the buffer's address, and how many.
///
/// # Errors
/// `MPI_ERR_TYPE`.
pub fn span(count: usize, datatype: MPI_Datatype) -> Result<(isize, usize)> {
    if let Some(size) = predefined_size(datatype) {
        return Ok((0, bytes(count, size)?));
    }
    let (first, len) = Shape::new(datatype::committed(datatype)?, count as i64)?.span();
    Ok((first as isize, len as usize))
}
