//! A slab whose entries are named by slot and generation, so that a name that outlived its entry, or that a peer made
//! up, finds nothing (law 9). Grows by doubling; steady use allocates nothing.

/// No slot: the end of a list by index.
pub(super) const NIL: u32 = u32::MAX;

/// A slot's number has fewer bits than these, so that a name leaves room for what kind of thing it names.
pub(super) const SLOT_BITS: u32 = 30;

/// A name of an entry, also on the wire: slot in the low half, generation in the high half. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    pub slot: u32,
    pub generation: u32,
}

impl Key {
    #[inline]
    pub const fn to_wire(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }

    #[inline]
    pub const fn from_wire(word: u64) -> Self {
        Key { slot: word as u32, generation: (word >> 32) as u32 }
    }
}

/// A place in [`Slots`]. A free one keeps its last value. Whole cache lines, the name in front of the value's first fields.
#[repr(C, align(64))]
pub(super) struct Slot<T> {
    /// Odd while in use, even while free: a name is made in use, so 0 names nothing.
    generation: u32,
    next_free: u32,
    value: T,
}

/// The slab.
pub(super) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: u32,
    used: u32,
}

impl<T> Slots<T> {
    pub const fn new() -> Self {
        Slots { slots: Vec::new(), free: NIL, used: 0 }
    }

    /// How many entries are in use.
    pub const fn used(&self) -> usize {
        self.used as usize
    }

    /// Takes a slot and puts `value` into it.
    #[inline]
    pub fn insert(&mut self, value: T) -> Key {
        if self.free == NIL {
            self.used += 1;
            return self.grow(value);
        }
        let key = self.reuse();
        self.slots[key.slot as usize].value = value;
        key
    }

    /// Takes a slot whose last value is still in it, to be set in place; `fresh` makes one for a slot never used.
    #[inline]
    pub fn take(&mut self, fresh: impl FnOnce() -> T) -> Key {
        if self.free == NIL {
            self.used += 1;
            return self.grow(fresh());
        }
        self.reuse()
    }

    /// The slot that `reuse` would take, or [`NIL`].
    #[inline]
    pub const fn next_free(&self) -> u32 {
        self.free
    }

    /// Takes the free slot that `next_free` names. Its last value is still in it.
    #[inline]
    pub fn reuse(&mut self) -> Key {
        self.reuse_entry().0
    }

    /// As `reuse`; the key and what is in the slot.
    #[inline(always)]
    pub fn reuse_entry(&mut self) -> (Key, &mut T) {
        let slot = self.free;
        let entry = &mut self.slots[slot as usize];
        self.free = entry.next_free;
        self.used += 1;
        entry.generation = entry.generation.wrapping_add(1);
        (Key { slot, generation: entry.generation }, &mut entry.value)
    }

    #[cold]
    fn grow(&mut self, value: T) -> Key {
        let slot = self.slots.len() as u32;
        assert!(self.slots.len() < 1 << SLOT_BITS, "fewer than 2^30 requests fit in memory");
        self.slots.push(Slot { generation: 1, next_free: NIL, value });
        Key { slot, generation: 1 }
    }

    /// The entry, while the name is good.
    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        let entry = self.slots.get(key.slot as usize)?;
        (entry.generation == key.generation && key.generation & 1 == 1).then_some(&entry.value)
    }

    /// The entry, while the name is good.
    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let entry = self.slots.get_mut(key.slot as usize)?;
        (entry.generation == key.generation && key.generation & 1 == 1).then_some(&mut entry.value)
    }

    /// Whatever is in a slot, if there is such a slot.
    #[inline]
    pub fn at_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(slot as usize).map(|entry| &mut entry.value)
    }

    /// The name of a slot in use.
    #[inline]
    pub fn key(&self, slot: u32) -> Key {
        let generation = self.slots[slot as usize].generation;
        debug_assert!(generation & 1 == 1, "slot {slot} is free");
        Key { slot, generation }
    }

    /// Frees a slot in use and leaves `vacant` in it.
    #[inline]
    pub fn remove(&mut self, slot: u32, vacant: T) -> T {
        self.free(slot);
        std::mem::replace(&mut self.slots[slot as usize].value, vacant)
    }

    /// Frees a slot in use and leaves its value in it.
    #[inline]
    pub fn free(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        assert!(entry.generation & 1 == 1, "slot {slot} is freed twice");
        entry.generation = entry.generation.wrapping_add(1);
        entry.next_free = self.free;
        self.free = slot;
        self.used -= 1;
    }

    /// Frees the entry if `take` has something of it, and leaves its value in the slot; nothing while `take` has nothing, or if the name is
    /// not good.
    #[inline(always)]
    pub fn free_if<R>(&mut self, key: Key, take: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        let entry = self.slots.get_mut(key.slot as usize)?;
        if entry.generation != key.generation || key.generation & 1 == 0 {
            return None;
        }
        let taken = take(&mut entry.value)?;
        entry.generation = entry.generation.wrapping_add(1);
        entry.next_free = self.free;
        self.free = key.slot;
        self.used -= 1;
        Some(taken)
    }

    /// All slots in use.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let used = |entry: &&Slot<T>| entry.generation & 1 == 1;
        (0..).zip(&self.slots).filter(move |(_, s)| used(s)).map(|(i, s)| (i, &s.value))
    }

    /// All slots in use.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter(|s| s.generation & 1 == 1).map(|s| &mut s.value)
    }
}

impl<T> std::ops::Index<u32> for Slots<T> {
    type Output = T;

    #[inline]
    fn index(&self, slot: u32) -> &T {
        &self.slots[slot as usize].value
    }
}

impl<T> std::ops::IndexMut<u32> for Slots<T> {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut T {
        &mut self.slots[slot as usize].value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_invented_names_find_nothing() {
        let mut slots = Slots::new();
        let a = slots.insert("a");
        assert_eq!(slots.get(a), Some(&"a"));
        slots.remove(a.slot, "");
        assert_eq!(slots.get(a), None);
        let b = slots.insert("b");
        assert_eq!(b.slot, a.slot);
        assert_eq!(slots.get(a), None);
        assert_eq!(slots.get(Key::from_wire(b.to_wire())), Some(&"b"));
        for word in [0, 1, 1 << 32, u64::MAX, 7 << 32 | 9] {
            assert_eq!(slots.get(Key::from_wire(word)), None);
        }
        assert_eq!(slots.iter().map(|(_, v)| *v).collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn what_is_freed_by_a_condition_is_free_once() {
        let mut slots = Slots::new();
        let (a, b) = (slots.insert(1), slots.insert(2));
        assert_eq!(slots.free_if(a, |_| None::<()>), None);
        assert_eq!((slots.get(a), slots.used()), (Some(&1), 2));
        assert_eq!(slots.free_if(a, |value| Some(*value)), Some(1));
        assert_eq!(slots.free_if(a, |value| Some(*value)), None);
        assert_eq!(slots.free_if(Key { generation: a.generation + 1, ..a }, |_| Some(())), None);
        assert_eq!((slots.get(a), slots.get(b), slots.used()), (None, Some(&2), 1));
        assert_eq!(slots.next_free(), a.slot);
        let (again, value) = slots.reuse_entry();
        assert_eq!((again.slot, *value), (a.slot, 1));
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn freeing_twice_is_caught() {
        let mut slots = Slots::new();
        let a = slots.insert(());
        slots.remove(a.slot, ());
        slots.remove(a.slot, ());
    }
}
