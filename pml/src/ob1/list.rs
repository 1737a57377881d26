//! Doubly linked lists by index through the entries of a [`Slots`]: no allocation, removal from the middle at once.

use super::slots::{NIL, Slots};

/// An entry's neighbours in one list. What the first entry has for one before it says nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    prev: u32,
    next: u32,
}

impl Links {
    pub const NONE: Links = Links { prev: NIL, next: NIL };
}

/// An entry that can be in the lists of kind `LANE`, one at a time.
pub(super) trait Linked<const LANE: usize> {
    fn links(&self) -> &Links;
    fn links_mut(&mut self) -> &mut Links;
}

/// The ends of a list of kind `LANE`.
#[derive(Clone, Copy, Debug)]
pub(super) struct List<const LANE: usize> {
    head: u32,
    tail: u32,
}

impl<const LANE: usize> List<LANE> {
    pub const EMPTY: Self = List { head: NIL, tail: NIL };

    /// The first entry, or [`NIL`].
    #[inline]
    pub const fn head(&self) -> u32 {
        self.head
    }

    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.head == NIL
    }

    /// The entry after `slot`, or [`NIL`].
    #[inline]
    pub fn next<T: Linked<LANE>>(slots: &Slots<T>, slot: u32) -> u32 {
        slots[slot].links().next
    }

    #[inline(always)]
    pub fn push_back<T: Linked<LANE>>(&mut self, slots: &mut Slots<T>, slot: u32) {
        *slots[slot].links_mut() = self.append(slots, slot);
    }

    /// Makes `slot` the last entry, but for what it has to be told: its neighbours.
    #[inline(always)]
    pub fn append<T: Linked<LANE>>(&mut self, slots: &mut Slots<T>, slot: u32) -> Links {
        let prev = std::mem::replace(&mut self.tail, slot);
        if prev == NIL {
            self.head = slot;
        } else {
            slots[prev].links_mut().next = slot;
        }
        Links { prev, next: NIL }
    }

    /// Takes out the first entry of a list that is not empty.
    #[inline(always)]
    pub fn pop_front<'a, T: Linked<LANE>>(&mut self, slots: &'a mut Slots<T>) -> &'a mut T {
        let first = &mut slots[self.head];
        self.head = first.links().next;
        if self.head == NIL {
            self.tail = NIL;
        }
        first
    }

    /// Takes out an entry that is in this list.
    #[inline]
    pub fn remove<T: Linked<LANE>>(&mut self, slots: &mut Slots<T>, slot: u32) {
        let Links { prev, next } = *slots[slot].links();
        let before = if self.head == slot {
            self.head = next;
            NIL
        } else {
            debug_assert_eq!(slots[prev].links().next, slot, "an entry of another list");
            slots[prev].links_mut().next = next;
            prev
        };
        if next == NIL {
            debug_assert_eq!(self.tail, slot, "an entry of another list");
            self.tail = before;
        } else {
            slots[next].links_mut().prev = before;
        }
        *slots[slot].links_mut() = Links::NONE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Node(Links);

    impl Linked<0> for Node {
        fn links(&self) -> &Links {
            &self.0
        }
        fn links_mut(&mut self) -> &mut Links {
            &mut self.0
        }
    }

    proptest! {
        #[test]
        fn like_a_vector(operations in proptest::collection::vec(any::<(bool, u8)>(), 0..60)) {
            let (mut slots, mut list, mut oracle) = (Slots::new(), List::<0>::EMPTY, Vec::new());
            for (push, which) in operations {
                if !push && which % 3 == 0 && !oracle.is_empty() {
                    let slot = list.head();
                    list.pop_front(&mut slots);
                    prop_assert_eq!(slot, oracle.remove(0));
                    slots.remove(slot, Node(Links::NONE));
                } else if push || oracle.is_empty() {
                    let slot = slots.insert(Node(Links::NONE)).slot;
                    list.push_back(&mut slots, slot);
                    oracle.push(slot);
                } else {
                    let slot = oracle.remove(usize::from(which) % oracle.len());
                    list.remove(&mut slots, slot);
                    slots.remove(slot, Node(Links::NONE));
                }
                let mut seen = Vec::new();
                let mut at = list.head();
                while at != NIL {
                    seen.push(at);
                    at = List::<0>::next(&slots, at);
                }
                prop_assert_eq!(&seen, &oracle);
            }
        }
    }
}
