//! What the library calls back: messages, errors, room, completions. Each callback writes it down here, or hands a message on
//! at once while [`Port::poll`](crate::Port::poll) has somebody to hand it to. No callback unwinds into the library.

use crate::raw;
use crate::status::Status;
use std::any::Any;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::ffi::{c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What happened, told by [`Port::poll`](crate::Port::poll).
#[derive(Debug)]
pub enum Event<'a> {
    /// A message. Nothing in it is believed yet; valid only during the call.
    Arrived(&'a [u8]),
    /// An endpoint broke, said the error handler. It can only be closed.
    Broke {
        /// What [`Port::connect`](crate::Port::connect) was given for it.
        mark: u64,
        /// Why.
        status: Status,
    },
    /// An endpoint that was asked to tell when it has room again has.
    Room {
        /// As above.
        mark: u64,
    },
    /// An operation that was under way is over.
    Done {
        /// What the operation was given.
        cookie: u64,
        /// How it ended.
        status: Status,
    },
}

/// Something told to be handed on later.
#[derive(Debug)]
pub(crate) enum Note {
    Broke(*mut raw::Ep, Status),
    Room(*mut raw::Ep),
    Done(u64, Status),
}

/// Receives a message while the owner polls.
type Hook<'a> = dyn FnMut(&[u8]) + 'a;

/// At a fixed place, which the library knows.
#[derive(Default)]
pub(crate) struct Inbox {
    hook: Cell<Option<*mut Hook<'static>>>,
    /// What is looked for, until a message comes.
    expected: Cell<Option<Expected>>,
    /// What followed its lead.
    brief: Cell<Option<Brief>>,
    /// Messages that came while nobody polled (the loop-back transport delivers while it sends), or that came when another one was
    /// looked for.
    early: RefCell<VecDeque<Box<[u8]>>>,
    early_bytes: Cell<usize>,
    pub notes: RefCell<Vec<Note>>,
    panic: Cell<Option<Box<dyn Any + Send>>>,
}

/// A message that is looked for ([`Port::expect`](crate::Port::expect)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// Its first words, as they lie in memory.
    pub lead: [u64; 3],
    /// How many bytes may follow.
    pub room: usize,
}

/// What follows the lead of a short message.
#[derive(Clone, Copy)]
struct Brief {
    bytes: [u8; Brief::MAX],
    len: usize,
}

impl Brief {
    /// The longest, in bytes.
    const MAX: usize = 32;

    /// Of the message that is expected, if it is short.
    #[inline(always)]
    fn of(message: &[u8], expected: Expected) -> Option<Brief> {
        const WORD: usize = size_of::<u64>();
        let (head, rest) = message.split_first_chunk::<{ 3 * WORD }>()?;
        let (words, _) = head.as_chunks::<WORD>();
        let differ = words
            .iter()
            .zip(expected.lead)
            .fold(0, |differ, (word, lead)| differ | (u64::from_ne_bytes(*word) ^ lead));
        if differ != 0 || rest.len() > expected.room {
            return None;
        }
        let mut brief = Brief { bytes: [0; Self::MAX], len: rest.len() };
        match <&[u8; WORD]>::try_from(rest) {
            Ok(word) => brief.bytes[..WORD].copy_from_slice(word),
            Err(_) => brief.bytes.get_mut(..rest.len())?.copy_from_slice(rest),
        }
        Some(brief)
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// What came of a look for one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// Nothing is here.
    Empty,
    /// It was taken.
    Taken,
    /// Something else is here, for [`Port::poll`](crate::Port::poll).
    Left,
}

impl Inbox {
    /// Runs `progress` with messages going to `f`, those that came early first. What `f` panicked with goes on from here.
    pub fn during<R>(&self, f: &mut Hook<'_>, progress: impl FnOnce() -> R) -> R {
        while let Some(message) = self.next_early() {
            f(&message);
        }
        self.hooked(f, progress)
    }

    /// Shows `take` the next message, which `progress` may bring; what it does not take, and all that comes after, is kept
    /// for `during`.
    pub fn first(&self, mut take: impl FnMut(&[u8]) -> bool, progress: impl FnOnce()) -> Look {
        if self.early_bytes.get() > 0 {
            return self.first_early(take);
        }
        let mut look = Look::Empty;
        let mut show = |message: &[u8]| {
            if look == Look::Empty && take(message) {
                look = Look::Taken;
                return;
            }
            if look == Look::Empty {
                look = Look::Left;
            }
            self.keep(message);
        };
        self.hooked(&mut show, progress);
        look
    }

    /// As [`first`](Inbox::first), for a message that is expected: if it is short, `brief` is given what follows its lead; otherwise it
    /// is shown to `take` like any other. Until `progress` was called once and `turns` times more in vain.
    #[inline(always)]
    pub fn expect(
        &self,
        expected: Expected,
        turns: u32,
        brief: impl FnOnce(&[u8]),
        mut take: impl FnMut(&[u8]) -> bool,
        progress: impl Fn(),
    ) -> Look {
        if self.early_bytes.get() > 0 {
            return self.first_early(take);
        }
        let look = Cell::new(Look::Empty);
        let mut show = |message: &[u8]| {
            let first = look.get() == Look::Empty && self.brief.get().is_none();
            if first && take(message) {
                return look.set(Look::Taken);
            }
            if first {
                look.set(Look::Left);
            }
            self.keep(message);
        };
        self.expected.set(Some(expected));
        self.hooked(&mut show, || {
            for _ in 0..=turns {
                progress();
                // Either a brief, or another message, which was shown.
                if self.expected.get().is_none() {
                    break;
                }
                // As in shm: a line that is asked for again and again comes later; and between far cores the looks have to last
                // for a round trip (8 B over posix 0.648 to 0.631 us, in turns; near cores the same).
                std::hint::spin_loop();
            }
        });
        self.expected.set(None);
        match self.brief.take() {
            Some(came) => {
                brief(came.bytes());
                Look::Taken
            }
            None => look.get(),
        }
    }

    #[cold]
    fn first_early(&self, mut take: impl FnMut(&[u8]) -> bool) -> Look {
        let Some(message) = self.next_early() else { return Look::Left };
        if take(&message) {
            return Look::Taken;
        }
        self.early_bytes.set(self.early_bytes.get() + message.len());
        self.early.borrow_mut().push_front(message);
        Look::Left
    }

    /// Keeps a message until somebody polls.
    #[cold]
    fn keep(&self, message: &[u8]) {
        self.early_bytes.set(self.early_bytes.get() + message.len());
        self.early.borrow_mut().push_back(message.into());
    }

    /// Runs `progress` with messages going to `f`.
    fn hooked<R>(&self, f: &mut Hook<'_>, progress: impl FnOnce() -> R) -> R {
        struct Unhook<'a>(&'a Inbox);
        impl Drop for Unhook<'_> {
            fn drop(&mut self) {
                self.0.hook.set(None);
            }
        }
        // SAFETY: only the lifetime changes; `Unhook` takes the pointer out before `f` ends, unwinding or not.
        let hook = unsafe { std::mem::transmute::<*mut Hook<'_>, *mut Hook<'static>>(f) };
        self.hook.set(Some(hook));
        let unhook = Unhook(self);
        let result = progress();
        drop(unhook);
        if let Some(panic) = self.panic.take() {
            std::panic::resume_unwind(panic);
        }
        result
    }

    fn next_early(&self) -> Option<Box<[u8]>> {
        let message = self.early.borrow_mut().pop_front()?;
        self.early_bytes.set(self.early_bytes.get() - message.len());
        Some(message)
    }

    /// Bytes of messages that came while nobody polled.
    pub fn early_bytes(&self) -> usize {
        self.early_bytes.get()
    }

    pub fn is_quiet(&self) -> bool {
        self.early_bytes.get() == 0 && self.notes.borrow().is_empty()
    }

    /// Runs `f`, which must not unwind into the library; goes on unwinding in [`Inbox::during`].
    fn guard<R>(&self, otherwise: R, f: impl FnOnce() -> R) -> R {
        match catch_unwind(AssertUnwindSafe(f)) {
            Ok(result) => result,
            Err(panic) => {
                self.panic.set(Some(panic));
                otherwise
            }
        }
    }
}

/// `uct_am_callback_t`: the argument is the inbox.
pub(crate) unsafe extern "C" fn arrived(
    arg: *mut c_void,
    data: *mut c_void,
    len: usize,
    _: c_uint,
) -> Status {
    // SAFETY: the port registered its inbox, which outlives its interfaces.
    let inbox = unsafe { &*arg.cast::<Inbox>() };
    // SAFETY: the library lends `len` bytes for the time of the callback.
    let message = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) };
    if let Some(expected) = inbox.expected.take()
        && let Some(brief) = Brief::of(message, expected)
    {
        inbox.brief.set(Some(brief));
        return Status::OK;
    }
    match inbox.hook.get() {
        // SAFETY: `during` has lent it until it takes it out; no message arrives within the hook, which cannot poll.
        Some(hook) => inbox.guard((), || unsafe { (*hook)(message) }),
        None => inbox.keep(message),
    }
    Status::OK
}

/// `uct_error_handler_t`: the argument is the inbox.
pub(crate) unsafe extern "C" fn broke(
    arg: *mut c_void,
    ep: *mut raw::Ep,
    status: Status,
) -> Status {
    // SAFETY: as in `arrived`.
    let inbox = unsafe { &*arg.cast::<Inbox>() };
    inbox.notes.borrow_mut().push(Note::Broke(ep, status));
    Status::OK // handled: it must not end the process
}

/// A request to be told when an endpoint has room; the library holds it while `waits`.
#[repr(C)]
pub(crate) struct Wish {
    pub request: raw::PendingReq,
    pub inbox: *const Inbox,
    pub ep: *mut raw::Ep,
    pub waits: bool,
}

/// `uct_pending_callback_t`.
pub(crate) unsafe extern "C" fn has_room(request: *mut raw::PendingReq) -> Status {
    // SAFETY: the request is the first field of a wish, which stays where it is until its endpoint is closed.
    let wish = unsafe { &mut *request.cast::<Wish>() };
    wish.waits = false;
    // SAFETY: the inbox outlives all endpoints.
    unsafe { &*wish.inbox }.notes.borrow_mut().push(Note::Room(wish.ep));
    Status::OK // taken off the queue
}

/// `uct_pending_purge_callback_t`.
pub(crate) unsafe extern "C" fn purged(request: *mut raw::PendingReq, _: *mut c_void) {
    // SAFETY: as in `has_room`.
    unsafe { (*request.cast::<Wish>()).waits = false };
}

/// An operation under way; the library holds it until it counted it down, and called `done`.
#[repr(C)]
pub(crate) struct Operation {
    completion: UnsafeCell<raw::Completion>,
    inbox: *const Inbox,
    pub cookie: u64,
    /// How many times the library has to count down until it calls `done`.
    count: c_int,
    over: Cell<bool>,
}

/// As many as are counted down in vain ([`Operation::uncalled`]): over tcp the library ends what it cannot send twice (1.13 and later,
/// `uct_tcp_ep_sendv`: by purging the endpoint, then by itself), and builds with assertions end the process where that is once
/// too often.
const ENOUGH: c_int = 8;

impl Operation {
    /// One of which the library tells by calling `done`.
    pub fn called(inbox: *const Inbox, cookie: u64) -> Box<Operation> {
        Self::new(inbox, cookie, 1)
    }

    /// One that is to be asked whether it is over, since the library may tell more than once.
    pub fn uncalled(inbox: *const Inbox, cookie: u64) -> Box<Operation> {
        Self::new(inbox, cookie, ENOUGH)
    }

    fn new(inbox: *const Inbox, cookie: u64, count: c_int) -> Box<Operation> {
        let completion = raw::Completion { func: done, count, status: Status::OK };
        let completion = UnsafeCell::new(completion);
        Box::new(Operation { completion, inbox, cookie, count, over: Cell::new(false) })
    }

    /// For the library, which may have it while this lives.
    pub fn completion(&self) -> *mut raw::Completion {
        self.completion.get()
    }

    /// Whether the library is done with it.
    pub fn is_over(&self) -> bool {
        // SAFETY: the library writes it within calls of this thread only.
        self.over.get() || unsafe { (*self.completion.get()).count } < self.count
    }

    pub fn is_uncalled(&self) -> bool {
        self.count == ENOUGH
    }

    /// How it ended, if the library is done with it and would not say so: once.
    pub fn take_unsaid(&self) -> Option<Status> {
        let unsaid = self.is_uncalled() && self.is_over() && !self.over.replace(true);
        // SAFETY: as above.
        unsaid.then(|| unsafe { (*self.completion.get()).status })
    }
}

/// `uct_completion_callback_t`.
pub(crate) unsafe extern "C" fn done(completion: *mut raw::Completion) {
    // SAFETY: the completion is the first field of an operation, which stays where it is until it is done.
    let operation = unsafe { &*completion.cast::<Operation>() };
    operation.over.set(true);
    // SAFETY: the inbox outlives all operations.
    let inbox = unsafe { &*operation.inbox };
    // SAFETY: the library writes it within calls of this thread only.
    let status = unsafe { (*operation.completion.get()).status };
    inbox.notes.borrow_mut().push(Note::Done(operation.cookie, status));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_takes_one_message_and_leaves_the_others_in_order() {
        let inbox = Inbox::default();
        let arg = (&raw const inbox).cast_mut().cast::<c_void>();
        let tell = |byte: u8| {
            let mut message = [byte; 3];
            // SAFETY: the inbox and the message are alive.
            assert_eq!(unsafe { arrived(arg, message.as_mut_ptr().cast(), 3, 0) }, Status::OK);
        };
        assert_eq!(inbox.first(|_| true, || ()), Look::Empty);
        let is = |wanted: u8| move |message: &[u8]| message == [wanted; 3];
        assert_eq!(inbox.first(is(1), || (1..=3).for_each(tell)), Look::Taken);
        assert_eq!(inbox.first(is(3), || unreachable!("something is here")), Look::Left);
        assert_eq!(inbox.first(is(2), || unreachable!("something is here")), Look::Taken);
        assert_eq!((inbox.early_bytes(), inbox.is_quiet()), (3, false));
        let mut seen = Vec::new();
        inbox.during(&mut |message: &[u8]| seen.push(message[0]), || tell(4));
        assert_eq!(inbox.first(is(6), || [5, 6].into_iter().for_each(tell)), Look::Left);
        inbox.during(&mut |message: &[u8]| seen.push(message[0]), || tell(7));
        assert_eq!(seen, [3, 4, 5, 6, 7]);
    }

    /// What the library does when it is done with an operation (`uct_invoke_completion`).
    fn count_down(operation: &Operation, status: Status) {
        let completion = operation.completion();
        // SAFETY: the operation is alive, and nobody else looks at it meanwhile.
        unsafe {
            assert!((*completion).count > 0, "where builds with assertions end the process");
            if (*completion).status == Status::OK {
                (*completion).status = status;
            }
            (*completion).count -= 1;
            if (*completion).count == 0 {
                ((*completion).func)(completion);
            }
        }
    }

    #[test]
    fn what_the_library_ends_twice_is_told_once() {
        let inbox = Inbox::default();
        let called = Operation::called(&raw const inbox, 3);
        assert!(!called.is_over() && !called.is_uncalled());
        count_down(&called, Status::OK);
        assert!(called.is_over() && called.take_unsaid().is_none());
        assert!(matches!(inbox.notes.borrow()[..], [Note::Done(3, Status::OK)]));
        let uncalled = Operation::uncalled(&raw const inbox, 4);
        assert!(!uncalled.is_over() && uncalled.take_unsaid().is_none());
        count_down(&uncalled, Status::CANCELED);
        count_down(&uncalled, Status::NO_DEVICE);
        assert!(uncalled.is_over());
        assert_eq!(uncalled.take_unsaid(), Some(Status::CANCELED));
        assert_eq!((uncalled.take_unsaid(), uncalled.is_over()), (None, true));
        assert_eq!(inbox.notes.borrow().len(), 1);
    }

    #[test]
    fn messages_that_came_early_are_first_and_panics_come_out() {
        let inbox = Inbox::default();
        let arg = (&raw const inbox).cast_mut().cast::<c_void>();
        let tell = |byte: u8| {
            let mut message = [byte; 3];
            // SAFETY: the inbox and the message are alive.
            assert_eq!(unsafe { arrived(arg, message.as_mut_ptr().cast(), 3, 0) }, Status::OK);
        };
        tell(1);
        assert_eq!(inbox.early_bytes(), 3);
        let mut seen = Vec::new();
        inbox.during(&mut |message: &[u8]| seen.push(message[0]), || tell(2));
        assert_eq!((seen, inbox.early_bytes()), (vec![1, 2], 0));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            inbox.during(&mut |_: &[u8]| panic!("in the owner"), || tell(3));
        }));
        assert!(panicked.is_err());
        tell(4);
        assert_eq!(inbox.early_bytes(), 3, "nobody is hooked any more");
    }
}
