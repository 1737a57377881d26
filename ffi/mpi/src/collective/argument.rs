//! The buffer arguments of collectives: a buffer of one kind of element, and one with a block for each rank. They are put together
//! as they come; what is wrong with them is said when they become [`Piece`]s.

use super::side::Piece;
use crate::data;
use crate::prelude::*;

/// A buffer, a count and a datatype.
#[derive(Clone, Copy, Debug)]
pub struct Uniform {
    pub buf: *const c_void,
    pub count: i64,
    pub datatype: MPI_Datatype,
}

/// A [`Uniform`] buffer.
#[inline(always)]
pub fn uniform(buf: *const c_void, count: impl ReadCount, datatype: MPI_Datatype) -> Uniform {
    Uniform { buf, count: count.wide(), datatype }
}

impl Uniform {
    /// All of it.
    ///
    /// # Errors
    /// `MPI_ERR_COUNT`.
    pub fn piece(self) -> Result<Piece> {
        Piece::new(self.buf, self.count, self.datatype)
    }

    /// As much for each of `n`.
    ///
    /// # Errors
    /// `MPI_ERR_COUNT`.
    pub fn times(self, n: u32) -> Result<Piece> {
        let Uniform { buf, count, datatype } = self;
        if count < 0 {
            return Err(fail(MPI_ERR_COUNT, format!("count is {count}, which is negative")));
        }
        let all = count.checked_mul(i64::from(n));
        let all = all.ok_or_else(|| fail(MPI_ERR_COUNT, "the counts overflow"))?;
        Piece::new(buf, all, datatype)
    }
}

/// A buffer with a block for each rank.
#[derive(Clone, Copy, Debug)]
pub struct Varying {
    pub buf: *const c_void,
    counts: Counts,
    displs: Counts,
    datatypes: Datatypes,
}

/// What the blocks are made of, and with it the unit of their displacements.
#[derive(Clone, Copy, Debug)]
enum Datatypes {
    /// All the same; displacements are in its extents.
    Same(MPI_Datatype),
    /// One for each; displacements are in bytes.
    Each(*const MPI_Datatype),
}

/// A [`Varying`] buffer of one datatype.
pub fn varying(
    buf: *const c_void,
    counts: impl Into<Counts>,
    displs: impl Into<Counts>,
    datatype: MPI_Datatype,
) -> Varying {
    let datatypes = Datatypes::Same(datatype);
    Varying { buf, counts: counts.into(), displs: displs.into(), datatypes }
}

/// A [`Varying`] buffer with a datatype for each block.
pub fn mixed(
    buf: *const c_void,
    counts: impl Into<Counts>,
    displs: impl Into<Counts>,
    datatypes: *const MPI_Datatype,
) -> Varying {
    let datatypes = Datatypes::Each(datatypes);
    Varying { buf, counts: counts.into(), displs: displs.into(), datatypes }
}

impl Varying {
    /// The blocks of `n` ranks.
    ///
    /// # Errors
    /// `MPI_ERR_COUNT`, `MPI_ERR_BUFFER`, `MPI_ERR_TYPE`.
    ///
    /// # Safety
    /// The caller's arrays have an entry for each rank.
    pub unsafe fn pieces(self, n: u32) -> Result<Vec<Piece>> {
        let Varying { buf, counts, displs, datatypes } = self;
        let unit = match datatypes {
            Datatypes::Same(datatype) => data::element(datatype)?.extent,
            Datatypes::Each(_) => 1,
        };
        let without = match datatypes {
            _ if n == 0 => None,
            _ if counts.is_null() => Some("an array of counts"),
            _ if displs.is_null() => Some("an array of displacements"),
            Datatypes::Each(datatypes) if datatypes.is_null() => Some("an array of datatypes"),
            _ => None,
        };
        if let Some(what) = without {
            return Err(fail(MPI_ERR_ARG, format!("{what} is a null pointer")));
        }
        let pieces = (0..n as usize).map(|rank| {
            // SAFETY: this function's contract.
            let (count, displ, datatype) = unsafe {
                let datatype = match datatypes {
                    Datatypes::Same(datatype) => datatype,
                    Datatypes::Each(datatypes) => *datatypes.add(rank),
                };
                (counts.get(rank), displs.get(rank), datatype)
            };
            Piece::at(buf, (displ as isize).wrapping_mul(unit), count, datatype)
        });
        pieces.collect()
    }
}

/// The operands of a reduction.
#[derive(Clone, Copy, Debug)]
pub struct Operands {
    pub sendbuf: *const c_void,
    pub recvbuf: *mut c_void,
    pub datatype: MPI_Datatype,
    pub op: MPI_Op,
}
