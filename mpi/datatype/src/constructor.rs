//! The calls that make datatypes, as values: what `MPI_Type_get_envelope` and `MPI_Type_get_contents` tell later.
//!
//! Checks arguments and compiles type maps from them (MPI 5.0, section 5.1.2 and 5.1.13). Arrays are in `array.rs`.

use crate::array::{self, Distribution, Order};
use crate::basic::Basic;
use crate::datatype::Datatype;
use crate::error::{Argument, TypeError, at_least, same_length, wrong};
use crate::map::{Builder, Map};

/// How a datatype was made. Lengths are in elements of the old type, displacements and strides of the forms with `H`,
/// of structs and of `Resized` in bytes.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields are named as the standard names the arguments")]
pub enum Constructor {
    /// A predefined type.
    Named(Basic),
    Dup(Datatype),
    Contiguous {
        count: i64,
        of: Datatype,
    },
    Vector {
        count: i64,
        blocklength: i64,
        stride: i64,
        of: Datatype,
    },
    Hvector {
        count: i64,
        blocklength: i64,
        stride: i64,
        of: Datatype,
    },
    Indexed {
        blocklengths: Vec<i64>,
        displacements: Vec<i64>,
        of: Datatype,
    },
    Hindexed {
        blocklengths: Vec<i64>,
        displacements: Vec<i64>,
        of: Datatype,
    },
    IndexedBlock {
        blocklength: i64,
        displacements: Vec<i64>,
        of: Datatype,
    },
    HindexedBlock {
        blocklength: i64,
        displacements: Vec<i64>,
        of: Datatype,
    },
    Struct {
        blocklengths: Vec<i64>,
        displacements: Vec<i64>,
        types: Vec<Datatype>,
    },
    Resized {
        lb: i64,
        extent: i64,
        of: Datatype,
    },
    Subarray {
        sizes: Vec<i64>,
        subsizes: Vec<i64>,
        starts: Vec<i64>,
        order: Order,
        of: Datatype,
    },
    Darray {
        size: i64,
        rank: i64,
        gsizes: Vec<i64>,
        distributions: Vec<Distribution>,
        /// [`DEFAULT_ARGUMENT`](crate::DEFAULT_ARGUMENT) stands for the distribution's default.
        arguments: Vec<i64>,
        psizes: Vec<i64>,
        order: Order,
        of: Datatype,
    },
    /// A real of at least this precision and range, in decimal digits; [`UNDEFINED`](crate::UNDEFINED) for any.
    F90Real {
        precision: i64,
        range: i64,
    },
    F90Complex {
        precision: i64,
        range: i64,
    },
    F90Integer {
        range: i64,
    },
    /// The struct of a value and an index, laid out as C does.
    ValueIndex {
        value: Datatype,
        index: Datatype,
    },
}

impl Constructor {
    /// Checks the arguments and compiles the type map.
    pub(crate) fn compile(&self) -> Result<Map, TypeError> {
        match self {
            Constructor::Named(basic) => Ok(Map::of(*basic)),
            Constructor::Dup(of) => Ok(of.map().clone()),
            Constructor::Contiguous { count, of } => {
                at_least(Argument::Count, 0, *count, 0)?;
                of.map().repeat(*count, of.extent())
            }
            Constructor::Vector { count, blocklength, stride, of } => {
                vector(of, *count, *blocklength, *stride, of.extent())
            }
            Constructor::Hvector { count, blocklength, stride, of } => {
                vector(of, *count, *blocklength, *stride, 1)
            }
            Constructor::Indexed { blocklengths, displacements, of } => {
                same_length(Argument::Displacement, displacements.len(), blocklengths.len())?;
                indexed(of, blocklengths.iter().copied().zip(displacements), of.extent())
            }
            Constructor::Hindexed { blocklengths, displacements, of } => {
                same_length(Argument::Displacement, displacements.len(), blocklengths.len())?;
                indexed(of, blocklengths.iter().copied().zip(displacements), 1)
            }
            Constructor::IndexedBlock { blocklength, displacements, of } => {
                at_least(Argument::BlockLength, 0, *blocklength, 0)?;
                indexed(of, displacements.iter().map(|d| (*blocklength, d)), of.extent())
            }
            Constructor::HindexedBlock { blocklength, displacements, of } => {
                at_least(Argument::BlockLength, 0, *blocklength, 0)?;
                indexed(of, displacements.iter().map(|d| (*blocklength, d)), 1)
            }
            Constructor::Struct { blocklengths, displacements, types } => {
                same_length(Argument::Displacement, displacements.len(), blocklengths.len())?;
                same_length(Argument::Type, types.len(), blocklengths.len())?;
                let mut builder = Builder::default();
                for (i, (&length, of)) in blocklengths.iter().zip(types).enumerate() {
                    at_least(Argument::BlockLength, i, length, 0)?;
                    builder.push(of.map(), length, of.extent(), displacements[i])?;
                }
                Ok(builder.finish())
            }
            Constructor::Resized { lb, extent, of } => {
                let ub = lb.checked_add(*extent).ok_or(TypeError::TooLarge)?;
                let map = of.map().clone();
                Ok(Map { bounds: map.bounds.with(*lb, ub), ..map })
            }
            Constructor::Subarray { sizes, subsizes, starts, order, of } => {
                array::subarray(sizes, subsizes, starts, *order, of)
            }
            Constructor::Darray {
                size,
                rank,
                gsizes,
                distributions,
                arguments,
                psizes,
                order,
                of,
            } => {
                let dims = array::dims(gsizes, distributions, arguments, psizes)?;
                array::darray(*size, *rank, &dims, *order, of)
            }
            Constructor::F90Real { precision, range } => Ok(Map::of(real(*precision, *range)?)),
            Constructor::F90Complex { precision, range } => {
                Ok(Map::of(complex(*precision, *range)?))
            }
            Constructor::F90Integer { range } => Ok(Map::of(integer(*range)?)),
            Constructor::ValueIndex { value, index } => {
                let second = round_up(value.true_extent(), index.map().bounds.align())?;
                let mut builder = Builder::default();
                builder.push(value.map(), 1, 0, 0)?;
                builder.push(index.map(), 1, 0, second)?;
                Ok(builder.finish())
            }
        }
    }

    /// The predefined type with a name that one chosen by precision and range is like.
    pub(crate) fn chosen(&self) -> Option<Basic> {
        match self {
            Constructor::F90Real { precision, range } => real(*precision, *range).ok(),
            Constructor::F90Complex { precision, range } => complex(*precision, *range).ok(),
            Constructor::F90Integer { range } => integer(*range).ok(),
            _ => None,
        }
    }

    /// The types it is made from.
    pub(crate) fn inner(&self) -> &[Datatype] {
        use std::slice::from_ref;
        match self {
            Constructor::Named(_)
            | Constructor::F90Real { .. }
            | Constructor::F90Complex { .. }
            | Constructor::F90Integer { .. } => &[],
            Constructor::Struct { types, .. } => types,
            // Both matter for depth only, and both are basic.
            Constructor::ValueIndex { value, .. } => from_ref(value),
            Constructor::Dup(of)
            | Constructor::Contiguous { of, .. }
            | Constructor::Vector { of, .. }
            | Constructor::Hvector { of, .. }
            | Constructor::Indexed { of, .. }
            | Constructor::Hindexed { of, .. }
            | Constructor::IndexedBlock { of, .. }
            | Constructor::HindexedBlock { of, .. }
            | Constructor::Resized { of, .. }
            | Constructor::Subarray { of, .. }
            | Constructor::Darray { of, .. } => from_ref(of),
        }
    }
}

fn round_up(value: i64, align: i64) -> Result<i64, TypeError> {
    let over = value % align;
    if over == 0 { Ok(value) } else { value.checked_add(align - over).ok_or(TypeError::TooLarge) }
}

fn vector(
    of: &Datatype,
    count: i64,
    blocklength: i64,
    stride: i64,
    unit: i64,
) -> Result<Map, TypeError> {
    at_least(Argument::Count, 0, count, 0)?;
    at_least(Argument::BlockLength, 0, blocklength, 0)?;
    if count == 0 || blocklength == 0 {
        return of.map().repeat(0, 0);
    }
    // The stride of a single block is never used, however large.
    let stride = if count == 1 { 0 } else { times(stride, unit)? };
    of.map().repeat(blocklength, of.extent())?.repeat(count, stride)
}

fn times(displacement: i64, unit: i64) -> Result<i64, TypeError> {
    displacement.checked_mul(unit).ok_or(TypeError::TooLarge)
}

fn indexed<'a>(
    of: &Datatype,
    blocks: impl Iterator<Item = (i64, &'a i64)>,
    unit: i64,
) -> Result<Map, TypeError> {
    let mut builder = Builder::default();
    for (i, (length, &displacement)) in blocks.enumerate() {
        at_least(Argument::BlockLength, i, length, 0)?;
        if length > 0 {
            builder.push(of.map(), length, of.extent(), times(displacement, unit)?)?;
        }
    }
    Ok(builder.finish())
}

/// The real type of at least this precision and range (MPI 5.0, section 19.1.9).
fn real(precision: i64, range: i64) -> Result<Basic, TypeError> {
    const KINDS: [(Basic, i64, i64); 3] =
        [(Basic::Real4, 6, 37), (Basic::Real8, 15, 307), (Basic::Real16, 33, 4931)];
    let (p, r) = match (precision, range) {
        (crate::UNDEFINED, crate::UNDEFINED) => {
            return Err(wrong(Argument::Precision, 0, precision, "given when the range is not"));
        }
        (crate::UNDEFINED, r) => (0, at_least(Argument::Range, 0, r, 0)?),
        (p, crate::UNDEFINED) => (at_least(Argument::Precision, 0, p, 0)?, 0),
        (p, r) => (at_least(Argument::Precision, 0, p, 0)?, at_least(Argument::Range, 0, r, 0)?),
    };
    if p > 33 {
        return Err(wrong(Argument::Precision, 0, p, "at most 33"));
    }
    let fits = KINDS.iter().find(|(_, precision, range)| p <= *precision && r <= *range);
    fits.map(|kind| kind.0).ok_or_else(|| wrong(Argument::Range, 0, r, "at most 4931"))
}

/// The complex type of such parts.
fn complex(precision: i64, range: i64) -> Result<Basic, TypeError> {
    Ok(match real(precision, range)? {
        Basic::Real4 => Basic::Complex8,
        Basic::Real8 => Basic::Complex16,
        _ => Basic::Complex32,
    })
}

/// The integer type of at least this many decimal digits.
fn integer(range: i64) -> Result<Basic, TypeError> {
    match at_least(Argument::Range, 0, range, 0)? {
        0..=2 => Ok(Basic::Integer1),
        3..=4 => Ok(Basic::Integer2),
        5..=9 => Ok(Basic::Integer4),
        10..=18 => Ok(Basic::Integer8),
        19..=38 => Ok(Basic::Integer16),
        _ => Err(wrong(Argument::Range, 0, range, "at most 38")),
    }
}
