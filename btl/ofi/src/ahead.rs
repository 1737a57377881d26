//! Long reads on processors that copy slowly to just ahead.
//!
//! The processors of AMD that [`slow_just_ahead`] names move a string (`rep movsb`, what the kernel and the C library copy by) 20 times as
//! slowly as usual where its target lies 1 to 31 bytes ahead of its source, counted within pages. And that is where a long
//! answer lies: the kernel has sent all that was before, begins the pages of the next message anew, and puts the provider's 16
//! bytes at their start, so that the user's bytes follow at 16; users' long memory begins a page, or at 16 in one. 1 MiB took 500 us and
//! more instead of 200 for it.
//!
//! What helps is to read a little before: the rest of the answer follows in the same pages, one header later.
//!
//! ```text
//!  a page of the socket's    │ 16 │ the user's bytes …                            ahead of the user's page by 16
//!  the same with a head      │ 16 │ 512 of them │ 16 │ the user's bytes …         by 32
//! ```

use ironweave_ffi::system::slow_just_ahead;
use std::sync::OnceLock;

/// Length of a head, in bytes: more than [`NEAR`], so that the rest is well even when the kernel began anew after it.
pub(crate) const HEAD: usize = 512;
/// A read has at most so many.
const MOST: usize = 4;
/// So many bytes ahead, and fewer, are slow.
const NEAR: usize = 31;
/// What native tcp has before the bytes of an answer, in bytes.
const HEADER: usize = 16;
const PAGE: usize = 4096;
/// Shorter reads gain less than another answer costs, in bytes.
const LONG: usize = 32 << 10;

/// How many heads a read of `len` bytes from place `there` of a page to place `here` of one is to have; `always`: one at least.
pub(crate) fn heads(always: bool, there: usize, here: usize, len: usize) -> usize {
    static SLOW: OnceLock<bool> = OnceLock::new();
    if always && len > MOST * HEAD {
        enough(there, here).max(1)
    } else if len >= LONG && *SLOW.get_or_init(slow_just_ahead) {
        enough(there, here)
    } else {
        0
    }
}

/// The fewest heads after which neither the sender's copy nor the receiver's goes to just ahead: each is two headers wide, so that four
/// are always enough.
fn enough(there: usize, here: usize) -> usize {
    let right = |heads: &usize| {
        let inside = HEADER * (heads + 1);
        !is_near(inside, there) && !is_near(here, inside)
    };
    (0..=MOST).find(right).unwrap_or(0)
}

/// Whether `target` lies just ahead of `source`, within pages.
fn is_near(target: usize, source: usize) -> bool {
    (1..=NEAR).contains(&((target % PAGE + PAGE - source % PAGE) % PAGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_well_is_left_whole() {
        assert_eq!(enough(16, 16), 0, "as the C library's long memory does");
        assert_eq!(enough(1000, 2000), 0);
        assert_eq!(heads(false, 0, 0, LONG - 1), 0);
        assert_eq!((heads(true, 16, 16, 5 * HEAD), heads(true, 0, 0, MOST * HEAD)), (1, 0));
    }

    #[test]
    fn whole_pages_get_a_head() {
        assert_eq!((enough(0, 0), enough(0, 16), enough(4090, 0)), (1, 1, 1));
        assert_eq!(enough(8, 0), 2, "one would be 24 bytes ahead");
        assert_eq!(enough(100, 32), 1, "the receiver's copy counts, too");
    }

    #[test]
    fn nothing_stays_slow() {
        for (there, here) in (0..PAGE).flat_map(|there| (0..256).map(move |here| (there, here))) {
            let inside = HEADER * (enough(there, here) + 1);
            assert!(!is_near(inside, there) && !is_near(here, inside), "{there} to {here}");
        }
    }
}
