//! The tags of collective operations, apart from those of users and of fault tolerance.
//!
//! ```text
//!      0 and up            users
//!     -1 …  -15            reserved for the library's own exchanges outside of schedules (communicator creation)
//!    -16                   all blocking collective calls of a communicator
//!    -17 … -2^29 + 1       one for each other collective call of a communicator, in the order of calls, in a circle
//!    -2^29 … -3·2^28 + 1   one for each persistent collective, in the order of initialisations, in a circle
//!  -3·2^28 … -7·2^27 + 1   partitioned operations that meet, by the user's tag ([`partitioned`])
//!  -7·2^27 … -2^30 + 1     their partitions ([`partition`])
//!    -2^30 and down        FT_TAG_MAX: resilient (agreement, shrink)
//! ```
//! All members of a communicator call its collectives, and initialise its persistent ones, in the same order (MPI 5.0
//! §6.14), so they count alike and messages of different operations never meet. A persistent operation keeps its tag,
//! because different ones may be started in different orders (§6.13); its own starts follow each other.
//!
//! Blocking calls follow each other at each member, and match blocking calls only (§6.12). Each sends a prefix of what its peers
//! receive, and everything that is sent is received, in the same order: so all of them share one tag (law 6), which costs the
//! matcher nothing to find. A call that ends with an error is the last one: the communicator's collectives are over then.

use ironweave_pml::ob1::{FT_TAG_MAX, PARTITIONED_TAG_MAX};

/// The tag of blocking calls.
pub(crate) const BLOCKING: i32 = -16;
const FIRST: i32 = BLOCKING - 1;
const FIRST_PERSISTENT: i32 = FT_TAG_MAX / 2;

/// The first tag of partitioned messages.
const FIRST_PARTITIONED: i32 = PARTITIONED_TAG_MAX;

/// The first tag of partitions.
const FIRST_PARTITION: i32 = (FIRST_PARTITIONED + FT_TAG_MAX) / 2;

/// So many different tags of partitions there are.
pub const PARTITION_TAGS: u32 = (FIRST_PARTITION - FT_TAG_MAX) as u32;

/// The tag by which the two sides of a partitioned operation meet (MPI 5.0, chapter 4): partitioned operations match each other only.
/// Tags of users that differ by a multiple of 2^27 share one.
#[must_use]
pub const fn partitioned(tag: i32) -> i32 {
    FIRST_PARTITIONED - tag % (FIRST_PARTITIONED - FIRST_PARTITION)
}

/// The tag of a partition's message, by a number that the sender gave it, which goes in a circle of [`PARTITION_TAGS`].
#[must_use]
pub const fn partition(number: u32) -> i32 {
    FIRST_PARTITION - (number % PARTITION_TAGS) as i32
}

/// Gives each operation of a communicator its tag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tags {
    next: i32,
    next_persistent: i32,
}

impl Tags {
    pub const fn new() -> Self {
        Tags { next: FIRST, next_persistent: FIRST_PERSISTENT }
    }

    /// For the next call.
    #[inline]
    pub const fn call(&mut self) -> i32 {
        let tag = self.next;
        self.next = if tag - 1 > FIRST_PERSISTENT { tag - 1 } else { FIRST };
        tag
    }

    /// The last call was not made.
    pub const fn undo(&mut self) {
        self.next = if self.next == FIRST { FIRST_PERSISTENT + 1 } else { self.next + 1 };
    }

    /// For the next persistent operation.
    pub const fn persistent(&mut self) -> i32 {
        let tag = self.next_persistent;
        self.next_persistent = if tag - 1 > FIRST_PARTITIONED { tag - 1 } else { FIRST_PERSISTENT };
        tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_go_in_circles_of_their_own() {
        let mut tags = Tags::new();
        assert_eq!((tags.call(), tags.call()), (-17, -18));
        tags.next = FIRST_PERSISTENT + 1;
        assert_eq!(tags.call(), FIRST_PERSISTENT + 1);
        tags.undo();
        assert_eq!((tags.call(), tags.call()), (FIRST_PERSISTENT + 1, FIRST));
        tags.undo();
        assert_eq!(tags.call(), FIRST);
        assert_eq!(tags.persistent(), FIRST_PERSISTENT);
        tags.next_persistent = FIRST_PARTITIONED + 1;
        assert_eq!(
            (tags.persistent(), tags.persistent()),
            (FIRST_PARTITIONED + 1, FIRST_PERSISTENT)
        );
        let all = [BLOCKING, FIRST, FIRST_PERSISTENT + 1, FIRST_PERSISTENT, FIRST_PARTITIONED + 1];
        assert!(all.into_iter().all(ironweave_pml::ob1::is_collective));
        for tag in [0, 1, i32::MAX, -FIRST_PARTITIONED] {
            let tag = partitioned(tag);
            assert!(FIRST_PARTITION < tag && !ironweave_pml::ob1::is_collective(tag), "{tag}");
        }
        assert_eq!(partition(PARTITION_TAGS), FIRST_PARTITION);
        assert_eq!(partition(PARTITION_TAGS - 1), FT_TAG_MAX + 1);
    }
}
