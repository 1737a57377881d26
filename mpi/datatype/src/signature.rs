//! Type signatures: which basic types follow each other in the packed data, in run-length form.
//!
//! Knows no displacements. Answers what counting elements, external32, reductions and checks of matching need, in time
//! that depends on the nesting and not on the number of elements.

use crate::basic::Basic;
use crate::error::TypeError;
use std::sync::Arc;

/// The sequence of basic types in one datatype. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Signature(Arc<Runs>);

#[derive(Debug)]
struct Runs {
    items: Box<[Item]>,
    totals: Totals,
}

/// `count` times the same; the totals of all items before it.
#[derive(Clone, Debug)]
struct Item {
    before: Totals,
    count: i64,
    of: Of,
}

#[derive(Clone, Debug)]
enum Of {
    Basic(Basic),
    Group(Signature),
}

/// What adds up along a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Totals {
    bytes: i64,
    elements: i64,
    external: i64,
    hash: Hash,
}

impl Totals {
    const NONE: Totals = Totals { bytes: 0, elements: 0, external: 0, hash: Hash::EMPTY };

    fn then(self, next: Totals) -> Result<Totals, TypeError> {
        let add = |a: i64, b: i64| a.checked_add(b).ok_or(TypeError::TooLarge);
        Ok(Totals {
            bytes: add(self.bytes, next.bytes)?,
            elements: add(self.elements, next.elements)?,
            external: add(self.external, next.external)?,
            hash: self.hash.then(next.hash),
        })
    }

    fn times(self, count: i64) -> Result<Totals, TypeError> {
        let times = |a: i64| a.checked_mul(count).ok_or(TypeError::TooLarge);
        Ok(Totals {
            bytes: times(self.bytes)?,
            elements: times(self.elements)?,
            external: times(self.external)?,
            hash: self.hash.times(count),
        })
    }
}

impl Of {
    fn totals(&self) -> Totals {
        match self {
            Of::Group(group) => group.0.totals,
            Of::Basic(basic) => {
                let hash = match basic.pair() {
                    Some((value, index)) => Hash::of(value).then(Hash::of(index)),
                    None => Hash::of(*basic),
                };
                Totals {
                    bytes: basic.size() as i64,
                    elements: basic.elements(),
                    external: basic.external_size() as i64,
                    hash,
                }
            }
        }
    }

    fn same(&self, other: &Of) -> bool {
        match (self, other) {
            (Of::Basic(a), Of::Basic(b)) => a == b,
            (Of::Group(a), Of::Group(b)) => Arc::ptr_eq(&a.0, &b.0),
            _ => false,
        }
    }
}

impl Signature {
    /// One basic type.
    pub(crate) fn of(basic: Basic) -> Signature {
        let of = Of::Basic(basic);
        let totals = of.totals();
        let items = Box::new([Item { before: Totals::NONE, count: 1, of }]);
        Signature(Arc::new(Runs { items, totals }))
    }

    /// Bytes of packed data.
    #[must_use]
    pub fn bytes(&self) -> i64 {
        self.0.totals.bytes
    }

    /// Basic elements, as `MPI_Get_elements` counts.
    #[must_use]
    pub fn elements(&self) -> i64 {
        self.0.totals.elements
    }

    /// Bytes in external32.
    #[must_use]
    pub fn external_bytes(&self) -> i64 {
        self.0.totals.external
    }

    /// Equal for equal sequences of basic types, however they were built; different, most likely, for others. For
    /// `count` of the type; pairs count as their two types.
    #[must_use]
    pub fn hash(&self, count: i64) -> u64 {
        self.0.totals.hash.times(count).value
    }

    /// The one basic type that all elements have.
    #[must_use]
    pub fn homogeneous(&self) -> Option<Basic> {
        match &*self.0.items {
            [Item { of: Of::Basic(basic), .. }] => Some(*basic),
            _ => None,
        }
    }

    /// Basic elements in the first `bytes` packed bytes of any number of this type; none when they end inside an element.
    #[must_use]
    pub fn elements_in(&self, bytes: i64) -> Option<i64> {
        let one = self.bytes();
        if one == 0 {
            return (bytes == 0).then_some(0);
        }
        let whole = (bytes / one).checked_mul(self.elements())?;
        whole.checked_add(self.elements_before(bytes % one)?)
    }

    /// As `elements_in`, of less than one of this type.
    fn elements_before(&self, bytes: i64) -> Option<i64> {
        if bytes == 0 {
            return Some(0);
        }
        let items = &self.0.items;
        let item = &items[items.partition_point(|item| item.before.bytes < bytes) - 1];
        let (one, inside) = (item.of.totals(), bytes - item.before.bytes);
        let rest = inside % one.bytes;
        let before = item.before.elements + inside / one.bytes * one.elements;
        match &item.of {
            Of::Group(group) => Some(before + group.elements_before(rest)?),
            Of::Basic(_) if rest == 0 => Some(before),
            Of::Basic(basic) => {
                let (first, _) = basic.pair()?;
                (rest == first.size() as i64).then_some(before + 1)
            }
        }
    }

    /// Packed bytes of the first `elements` basic elements of any number of this type; none when that is too large.
    #[must_use]
    pub fn bytes_of(&self, elements: i64) -> Option<i64> {
        let one = self.elements();
        if one == 0 || elements < 0 {
            return (elements == 0).then_some(0);
        }
        let whole = (elements / one).checked_mul(self.bytes())?;
        whole.checked_add(self.bytes_before(elements % one))
    }

    fn bytes_before(&self, elements: i64) -> i64 {
        if elements == 0 {
            return 0;
        }
        let items = &self.0.items;
        let item = &items[items.partition_point(|item| item.before.elements < elements) - 1];
        let (one, inside) = (item.of.totals(), elements - item.before.elements);
        let rest = inside % one.elements;
        let before = item.before.bytes + inside / one.elements * one.bytes;
        before
            + match &item.of {
                Of::Group(group) => group.bytes_before(rest),
                Of::Basic(basic) if rest > 0 => {
                    basic.pair().map_or(0, |(first, _)| first.size() as i64)
                }
                Of::Basic(_) => 0,
            }
    }

    /// Calls `run` for runs of one basic type, in order, for one of this type.
    pub fn for_each_run(&self, run: &mut impl FnMut(Basic, i64)) {
        for item in &self.0.items {
            match &item.of {
                Of::Basic(basic) => run(*basic, item.count),
                Of::Group(group) => (0..item.count).for_each(|_| group.for_each_run(run)),
            }
        }
    }

    /// `count` of it, one after the other.
    pub(crate) fn times(&self, count: i64) -> Result<Signature, TypeError> {
        let mut builder = Builder::default();
        builder.push(self, count)?;
        Ok(builder.finish())
    }
}

/// A signature in the making.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    items: Vec<Item>,
    totals: Option<Totals>,
}

impl Builder {
    /// Appends `count` times `signature`.
    pub fn push(&mut self, signature: &Signature, count: i64) -> Result<(), TypeError> {
        match &*signature.0.items {
            [] => Ok(()),
            [item] => {
                let count = item.count.checked_mul(count).ok_or(TypeError::TooLarge)?;
                self.push_item(count, &item.of)
            }
            items if count == 1 => {
                items.iter().try_for_each(|item| self.push_item(item.count, &item.of))
            }
            _ => self.push_item(count, &Of::Group(signature.clone())),
        }
    }

    fn push_item(&mut self, count: i64, of: &Of) -> Result<(), TypeError> {
        if count == 0 {
            return Ok(());
        }
        let before = self.totals.unwrap_or(Totals::NONE);
        self.totals = Some(before.then(of.totals().times(count)?)?);
        match self.items.last_mut() {
            Some(last) if last.of.same(of) => {
                last.count = last.count.checked_add(count).ok_or(TypeError::TooLarge)?;
            }
            _ => self.items.push(Item { before, count, of: of.clone() }),
        }
        Ok(())
    }

    pub fn finish(self) -> Signature {
        let totals = self.totals.unwrap_or(Totals::NONE);
        Signature(Arc::new(Runs { items: self.items.into(), totals }))
    }
}

/// A polynomial over the sequence, modulo 2^61 - 1: that of two sequences, one after the other, follows from theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hash {
    value: u64,
    /// The base to the power of the sequence's length.
    power: u64,
}

impl Hash {
    const MODULUS: u64 = (1 << 61) - 1;
    const BASE: u64 = 0x0e8d_3a94_c7b6_5d21;
    const EMPTY: Hash = Hash { value: 0, power: 1 };

    const fn product(a: u64, b: u64) -> u64 {
        (a as u128 * b as u128 % Self::MODULUS as u128) as u64
    }

    const fn of(basic: Basic) -> Hash {
        // Spread, so that small sums of handles do not collide.
        let value = Self::product(basic.abi() as u64, 0x1234_5678_9abc_def1 % Self::MODULUS);
        Hash { value, power: Self::BASE }
    }

    const fn then(self, next: Hash) -> Hash {
        let value = (Self::product(self.value, next.power) + next.value) % Self::MODULUS;
        Hash { value, power: Self::product(self.power, next.power) }
    }

    const fn times(self, count: i64) -> Hash {
        let (mut all, mut square, mut left) = (Hash::EMPTY, self, count);
        while left > 0 {
            if left & 1 == 1 {
                all = all.then(square);
            }
            square = square.then(square);
            left >>= 1;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(parts: &[(&Signature, i64)]) -> Signature {
        let mut builder = Builder::default();
        for (signature, count) in parts {
            builder.push(signature, *count).expect("small");
        }
        builder.finish()
    }

    #[test]
    fn runs_of_one_type_stay_one_run() {
        let int = Signature::of(Basic::Int);
        let many = sequence(&[(&int.times(1 << 40).expect("small"), 3), (&int, 5)]);
        assert_eq!(many.homogeneous(), Some(Basic::Int));
        assert_eq!(many.elements(), (3 << 40) + 5);
        assert_eq!(int.times(i64::MAX / 2).err(), Some(TypeError::TooLarge));
    }

    #[test]
    fn hashes_do_not_depend_on_how_a_sequence_was_built() {
        let (int, double) = (Signature::of(Basic::Int), Signature::of(Basic::Double));
        let pair = sequence(&[(&double, 1), (&int, 1)]);
        let flat =
            sequence(&[(&double, 1), (&int, 1), (&double, 1), (&int, 1), (&double, 1), (&int, 1)]);
        assert_eq!(pair.hash(3), flat.hash(1));
        assert_eq!(pair.hash(1), Signature::of(Basic::DoubleInt).hash(1));
        assert_ne!(pair.hash(1), sequence(&[(&int, 1), (&double, 1)]).hash(1));
        assert_ne!(int.hash(3), int.hash(4));
        assert_eq!(int.hash(0), double.hash(0));
    }

    #[test]
    fn elements_are_counted_where_they_end() {
        let (int, pair) = (Signature::of(Basic::Int), Signature::of(Basic::DoubleInt));
        let group = sequence(&[(&int, 2), (&pair, 3)]);
        let all = group.times(4).expect("small");
        assert_eq!((all.bytes(), all.elements()), (4 * 44, 4 * 8));
        let expected = |bytes| match bytes % 44 {
            0 => Some(0),
            4 => Some(1),
            rest @ 8.. => match (rest - 8) % 12 {
                0 => Some(2 + (rest - 8) / 12 * 2),
                8 => Some(2 + (rest - 8) / 12 * 2 + 1),
                _ => None,
            },
            _ => None,
        };
        for bytes in 0..4 * 44 * 2 {
            let elements = expected(bytes).map(|rest| bytes / 44 * 8 + rest);
            assert_eq!(all.elements_in(bytes), elements, "{bytes}");
            if let Some(elements) = elements {
                assert_eq!(all.bytes_of(elements), Some(bytes));
            }
        }
    }
}
