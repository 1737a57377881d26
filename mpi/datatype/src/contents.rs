//! What `MPI_Type_get_envelope` and `MPI_Type_get_contents` tell of a datatype (MPI 5.0, section 5.1.13).

use crate::constructor::Constructor;
use crate::datatype::Datatype;

/// Which call made a datatype. Values are the ABI's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the standard's")]
pub enum Combiner {
    Named = 101,
    Dup = 102,
    Contiguous = 103,
    Vector = 104,
    Hvector = 105,
    Indexed = 106,
    Hindexed = 107,
    IndexedBlock = 108,
    HindexedBlock = 109,
    Struct = 110,
    Subarray = 111,
    Darray = 112,
    F90Real = 113,
    F90Complex = 114,
    F90Integer = 115,
    Resized = 116,
    ValueIndex = 117,
}

/// The arguments of the call that made a datatype, sorted by kind, in the standard's order.
#[derive(Clone, Debug)]
pub struct Contents {
    /// Which call.
    pub combiner: Combiner,
    /// Arguments of type `int`.
    pub integers: Vec<i64>,
    /// Arguments of type `MPI_Aint`, in bytes.
    pub addresses: Vec<i64>,
    /// Arguments of type `MPI_Count`; of large-count calls only.
    pub large_counts: Vec<i64>,
    /// The old types.
    pub datatypes: Vec<Datatype>,
}

/// Sorts arguments into the arrays where they belong.
struct Sorter {
    large: bool,
    contents: Contents,
}

impl Sorter {
    /// An `int`, also of large-count calls.
    fn int(mut self, value: i64) -> Self {
        self.contents.integers.push(value);
        self
    }

    fn ints(mut self, values: impl IntoIterator<Item = i64>) -> Self {
        self.contents.integers.extend(values);
        self
    }

    /// An `int` that is an `MPI_Count` of large-count calls.
    fn count(self, value: i64) -> Self {
        self.counts(&[value])
    }

    fn counts(mut self, values: &[i64]) -> Self {
        let contents = &mut self.contents;
        let to = if self.large { &mut contents.large_counts } else { &mut contents.integers };
        to.extend(values);
        self
    }

    /// An `MPI_Aint` that is an `MPI_Count` of large-count calls.
    fn bytes(mut self, values: &[i64]) -> Self {
        let contents = &mut self.contents;
        let to = if self.large { &mut contents.large_counts } else { &mut contents.addresses };
        to.extend(values);
        self
    }

    fn types(mut self, types: &[Datatype]) -> Contents {
        self.contents.datatypes.extend_from_slice(types);
        self.contents
    }
}

impl Contents {
    pub(crate) fn of(constructor: &Constructor, large: bool) -> Contents {
        let sort = |combiner| Sorter {
            large,
            contents: Contents {
                combiner,
                integers: Vec::new(),
                addresses: Vec::new(),
                large_counts: Vec::new(),
                datatypes: Vec::new(),
            },
        };
        let sorted = match constructor {
            Constructor::Named(_) => sort(Combiner::Named),
            Constructor::Dup(_) => sort(Combiner::Dup),
            Constructor::Contiguous { count, .. } => sort(Combiner::Contiguous).count(*count),
            Constructor::Vector { count, blocklength, stride, .. } => {
                sort(Combiner::Vector).counts(&[*count, *blocklength, *stride])
            }
            Constructor::Hvector { count, blocklength, stride, .. } => {
                sort(Combiner::Hvector).counts(&[*count, *blocklength]).bytes(&[*stride])
            }
            Constructor::Indexed { blocklengths, displacements, .. } => sort(Combiner::Indexed)
                .count(blocklengths.len() as i64)
                .counts(blocklengths)
                .counts(displacements),
            Constructor::Hindexed { blocklengths, displacements, .. } => sort(Combiner::Hindexed)
                .count(blocklengths.len() as i64)
                .counts(blocklengths)
                .bytes(displacements),
            Constructor::IndexedBlock { blocklength, displacements, .. } => {
                sort(Combiner::IndexedBlock)
                    .counts(&[displacements.len() as i64, *blocklength])
                    .counts(displacements)
            }
            Constructor::HindexedBlock { blocklength, displacements, .. } => {
                sort(Combiner::HindexedBlock)
                    .counts(&[displacements.len() as i64, *blocklength])
                    .bytes(displacements)
            }
            Constructor::Struct { blocklengths, displacements, .. } => sort(Combiner::Struct)
                .count(blocklengths.len() as i64)
                .counts(blocklengths)
                .bytes(displacements),
            Constructor::Resized { lb, extent, .. } => {
                sort(Combiner::Resized).bytes(&[*lb, *extent])
            }
            Constructor::Subarray { sizes, subsizes, starts, order, .. } => {
                sort(Combiner::Subarray)
                    .int(sizes.len() as i64)
                    .counts(sizes)
                    .counts(subsizes)
                    .counts(starts)
                    .int(*order as i64)
            }
            Constructor::Darray {
                size,
                rank,
                gsizes,
                distributions,
                arguments,
                psizes,
                order,
                ..
            } => sort(Combiner::Darray)
                .ints([*size, *rank, gsizes.len() as i64])
                .counts(gsizes)
                .ints(distributions.iter().map(|d| *d as i64))
                .ints(arguments.iter().copied())
                .ints(psizes.iter().copied())
                .int(*order as i64),
            Constructor::F90Real { precision, range } => {
                sort(Combiner::F90Real).ints([*precision, *range])
            }
            Constructor::F90Complex { precision, range } => {
                sort(Combiner::F90Complex).ints([*precision, *range])
            }
            Constructor::F90Integer { range } => sort(Combiner::F90Integer).int(*range),
            Constructor::ValueIndex { value, index } => {
                return sort(Combiner::ValueIndex).types(&[value.clone(), index.clone()]);
            }
        };
        sorted.types(constructor.inner())
    }
}
