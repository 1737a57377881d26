//! Why a datatype cannot be made: which argument is wrong, and how.

use thiserror::Error;

/// An argument of a constructor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the standard's")]
pub enum Argument {
    Count,
    BlockLength,
    Displacement,
    Size,
    Rank,
    Dimensions,
    ArraySize,
    SubarraySize,
    Start,
    Distribution,
    DistributionArgument,
    ProcessGrid,
    Precision,
    Range,
    Type,
}

impl std::fmt::Display for Argument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Argument::Count => "count",
            Argument::BlockLength => "block length",
            Argument::Displacement => "displacement",
            Argument::Size => "size",
            Argument::Rank => "rank",
            Argument::Dimensions => "number of dimensions",
            Argument::ArraySize => "array size",
            Argument::SubarraySize => "subarray size",
            Argument::Start => "start",
            Argument::Distribution => "distribution",
            Argument::DistributionArgument => "distribution argument",
            Argument::ProcessGrid => "process grid",
            Argument::Precision => "precision",
            Argument::Range => "range",
            Argument::Type => "datatype",
        })
    }
}

/// Why a datatype cannot be made or used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TypeError {
    /// A number that cannot be.
    #[error("{argument} {value} (number {index}) must be {must}")]
    Argument {
        /// Which argument.
        argument: Argument,
        /// Which entry of an array; 0 for a single number.
        index: usize,
        /// What was given.
        value: i64,
        /// What would have been right.
        must: &'static str,
    },
    /// Arrays that belong together have different lengths.
    #[error("{given} values of {argument} where {wanted} are needed")]
    Lengths {
        /// The array that is too long or short.
        argument: Argument,
        /// How long it is.
        given: usize,
        /// How long it must be.
        wanted: usize,
    },
    /// A size, bound or displacement does not fit into 63 bits and a sign.
    #[error("a size, bound or displacement of the datatype exceeds 2^63 - 1 bytes")]
    TooLarge,
    /// Constructors nest deeper than [`MAX_DEPTH`](crate::MAX_DEPTH).
    #[error("datatypes nest deeper than {}", crate::MAX_DEPTH)]
    TooDeep,
    /// A buffer is shorter than the data.
    #[error("{needed} bytes do not fit into the {room} that are left of the buffer")]
    Truncated {
        /// What is to be packed or unpacked, in bytes.
        needed: usize,
        /// What is left behind the position, in bytes.
        room: usize,
    },
}

/// That `value` is at least `least`.
pub(crate) fn at_least(
    argument: Argument,
    index: usize,
    value: i64,
    least: i64,
) -> Result<i64, TypeError> {
    let must = if least == 0 { "0 or more" } else { "1 or more" };
    if value < least { Err(wrong(argument, index, value, must)) } else { Ok(value) }
}

/// The error for one wrong number.
pub(crate) fn wrong(argument: Argument, index: usize, value: i64, must: &'static str) -> TypeError {
    TypeError::Argument { argument, index, value, must }
}

/// That an array has `wanted` entries.
pub(crate) fn same_length(
    argument: Argument,
    given: usize,
    wanted: usize,
) -> Result<(), TypeError> {
    if given == wanted { Ok(()) } else { Err(TypeError::Lengths { argument, given, wanted }) }
}
