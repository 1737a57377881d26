//! Communicators and blocking point-to-point operations (MPI standard 5.0, chapter 3).
//!
//! Every call ends in bounded time once a process that it needs is known to have failed: with
//! [`Error::ProcFailed`](crate::Error), never with a hang (seed 003 §17.6). Buffers of operations that failed hold
//! undefined contents. Nothing writes a buffer after its call returned (law 2).
#![allow(unsafe_code)] // lends memory: see `lend`

use crate::message::{Element, ElementMut, Source, Status, Tag};
use crate::threading::{Handle, Single, Threading, Ticket};
use crate::{Result, Scope, lend, properties};
use ironweave_btl::memory::RecvRegion;
use ironweave_core::CommHandle;
use ironweave_pml::ob1::{self, CommId, MessageId, Mode, Started};
use std::fmt;
use std::sync::Arc;
use zerocopy::IntoBytes as _;

/// A communicator: an ordered group of processes and a space of messages of its own.
///
/// Cheap to clone; with [`Multiple`](crate::Multiple) clones can be given to other threads.
pub struct Comm<T: Threading = Single> {
    handle: T::Handle,
    id: CommId,
    rank: u32,
    size: u32,
    shared: Arc<Shared<T>>,
}

/// What all clones of a communicator have in common. It is freed with the last of them.
struct Shared<T: Threading> {
    handle: T::Handle,
    comm: CommHandle,
    /// The world's own is not freed.
    owned: bool,
}

impl<T: Threading> Drop for Shared<T> {
    fn drop(&mut self) {
        if self.owned {
            properties::clear(&self.handle, self.comm);
            // After a panic inside the library, or when the world is over, there is nothing left to free.
            let _ = self.handle.with(|engine| Ok(engine.free(self.comm)?));
        }
    }
}

impl<T: Threading> Clone for Comm<T> {
    fn clone(&self) -> Self {
        let shared = Arc::clone(&self.shared);
        Comm { handle: self.handle.clone(), id: self.id, rank: self.rank, size: self.size, shared }
    }
}

impl<T: Threading> Comm<T> {
    /// The communicator that the core knows as `comm`; `owned`: it is freed with its last clone.
    pub(crate) fn new(handle: T::Handle, comm: CommHandle, owned: bool) -> Result<Self> {
        let (id, rank, size) = handle.with(|engine| {
            let size = match engine.remote_group(comm)? {
                Some(remote) => remote.len(),
                None => engine.group(comm)?.len(),
            };
            Ok((engine.point_to_point(comm)?, engine.rank(comm)?, size))
        })?;
        let shared = Arc::new(Shared { handle: handle.clone(), comm, owned });
        Ok(Comm { handle, id, rank, size, shared })
    }

    /// How the core knows it.
    pub(crate) fn core(&self) -> CommHandle {
        self.shared.comm
    }

    pub(crate) fn handle(&self) -> &T::Handle {
        &self.handle
    }

    pub(crate) fn id(&self) -> CommId {
        self.id
    }

    /// This process's rank: 0 to `size() - 1`.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many processes the communicator has. Failures do not change it.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Sends `data` in standard mode (`MPI_Send`): returns when the buffer can be used again, which for short messages
    /// does not wait for the receiver.
    ///
    /// ```
    /// # let world = ironweave::World::init()?;
    /// let comm = world.comm();
    /// comm.send(&[1.0, 2.0], comm.rank(), 7)?; // to itself: short messages need no receive yet
    /// let mut got = [0.0; 2];
    /// let status = comm.recv(&mut got, comm.rank(), 7)?;
    /// assert_eq!((got, status.count::<f64>()?), ([1.0, 2.0], 2));
    /// # Ok::<(), ironweave::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ProcFailed`](crate::Error) when `dest` has failed, [`Error::Revoked`](crate::Error),
    /// [`Error::InvalidRank`](crate::Error), [`Error::InvalidTag`](crate::Error).
    #[inline]
    pub fn send<E: Element>(&self, data: &[E], dest: u32, tag: i32) -> Result<()> {
        let tag = Tag::check(tag)?;
        let bytes = data.as_bytes();
        if self.handle.send_now(self.id, bytes, dest, tag) {
            return Ok(());
        }
        self.send_farther(bytes, dest, tag)
    }

    /// Sends what did not go out at once.
    #[cold]
    #[inline(never)]
    fn send_farther(&self, bytes: &[u8], dest: u32, tag: i32) -> Result<()> {
        self.send_bytes(Mode::Standard, bytes, dest, tag)
    }

    /// Sends a short message that goes out at once; whether it did.
    #[inline(always)]
    fn send_inline(&self, bytes: &[u8], dest: u32, tag: i32) -> Result<bool> {
        self.handle.with(|engine| {
            engine.listen();
            engine.resolving(|pml| pml.send_inline(self.id, bytes, dest, tag))
        })
    }

    /// Sends in synchronous mode (`MPI_Ssend`): returns when the message has been matched by a receive.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn ssend<E: Element>(&self, data: &[E], dest: u32, tag: i32) -> Result<()> {
        self.send_bytes(Mode::Synchronous, data.as_bytes(), dest, Tag::check(tag)?)
    }

    /// Sends in ready mode (`MPI_Rsend`): the caller promises that the receive is posted.
    ///
    /// # Errors
    /// As [`send`](Self::send); [`Error::NotReady`](crate::Error) where the broken promise shows.
    pub fn rsend<E: Element>(&self, data: &[E], dest: u32, tag: i32) -> Result<()> {
        self.send_bytes(Mode::Ready, data.as_bytes(), dest, Tag::check(tag)?)
    }

    /// Sends in buffered mode (`MPI_Bsend`): copies the data and returns at once, however long it is. The copy is freed
    /// when it was sent; its fate is not reported.
    ///
    /// # Errors
    /// [`Error::InvalidRank`](crate::Error), [`Error::InvalidTag`](crate::Error).
    pub fn bsend<E: Element>(&self, data: &[E], dest: u32, tag: i32) -> Result<()> {
        self.send_bytes(Mode::Buffered, data.as_bytes(), dest, Tag::check(tag)?)
    }

    fn send_bytes(&self, mode: Mode, bytes: &[u8], dest: u32, tag: i32) -> Result<()> {
        // SAFETY: `finish` below returns only when the engine gave the payload back.
        let data = unsafe { lend::payload(bytes) };
        let ticket = self.handle.send(self.id, mode, data, dest, tag);
        let sent = ticket.and_then(|ticket| self.handle.finish(&ticket).map(drop));
        self.raise("send", sent)
    }

    /// Receives into `buffer` (`MPI_Recv`); a shorter message fills its beginning.
    ///
    /// ```
    /// # let world = ironweave::World::init()?;
    /// # let comm = world.comm();
    /// # comm.send(&[5u8], comm.rank(), 3)?;
    /// use ironweave::{Source, Tag};
    /// let mut buffer = [0u8; 16];
    /// let status = comm.recv(&mut buffer, Source::Any, Tag::Any)?;
    /// println!("{} bytes from rank {}, tag {}", status.bytes, status.source, status.tag);
    /// # Ok::<(), ironweave::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ProcFailed`](crate::Error) when the source has failed and no message of it is left, or, for
    /// [`Source::Any`], when a failure in the communicator is not acknowledged;
    /// [`Error::Truncated`](crate::Error) when the message is longer than the buffer, which then holds its
    /// beginning; [`Error::Revoked`](crate::Error).
    #[inline]
    pub fn recv<E: ElementMut>(
        &self,
        buffer: &mut [E],
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Status> {
        self.receive("recv", buffer, source.into().into(), tag.into().matching()?)
    }

    /// Receives, for a call of this name.
    #[inline(always)]
    fn receive<E: ElementMut>(
        &self,
        call: &'static str,
        buffer: &mut [E],
        source: ob1::Source,
        tag: ob1::TagMatch,
    ) -> Result<Status> {
        // SAFETY: `finish` below returns only when the engine gave the buffer back.
        let into = unsafe { lend::buffer(buffer.as_mut_bytes()) };
        if let (ob1::Source::Rank(rank), ob1::TagMatch::Tag(tag)) = (source, tag)
            && let Some(bytes) = self.handle.recv_soon(self.id, &into, rank, tag)
        {
            return Ok(ob1::Status { source: rank, tag, bytes }.into());
        }
        self.receive_farther(call, into, source, tag)
    }

    /// Receives what does not come soon.
    #[cold]
    #[inline(never)]
    fn receive_farther(
        &self,
        call: &'static str,
        into: RecvRegion,
        source: ob1::Source,
        tag: ob1::TagMatch,
    ) -> Result<Status> {
        let ticket = self.handle.recv(self.id, into, source, tag, true);
        let received = ticket.and_then(|ticket| self.handle.finish(&ticket));
        self.raise(call, received)
    }

    /// Sends and receives at once (`MPI_Sendrecv`): cannot deadlock with others that do the same.
    ///
    /// # Errors
    /// As [`send`](Self::send) and [`recv`](Self::recv); when both fail, the receive's error. Both are over in any
    /// case.
    pub fn sendrecv<E: Element, F: ElementMut>(
        &self,
        data: &[E],
        dest: u32,
        send_tag: i32,
        buffer: &mut [F],
        source: impl Into<Source>,
        recv_tag: impl Into<Tag>,
    ) -> Result<Status> {
        let send_tag = Tag::check(send_tag)?;
        let (source, tag) = (source.into().into(), recv_tag.into().matching()?);
        // A message that goes out at once leaves a receive to be waited for, and that may take the shortest way.
        if matches!(source, ob1::Source::Rank(rank) if rank < self.size) {
            let bytes = data.as_bytes();
            let out = self.handle.send_now(self.id, bytes, dest, send_tag) || {
                let inline = self.send_inline(bytes, dest, send_tag);
                self.raise("sendrecv", inline)?
            };
            if out {
                return self.receive("sendrecv", buffer, source, tag);
            }
        }
        // SAFETY: both `finish` calls below return only when the engine gave the memory back.
        let (into, data) =
            unsafe { (lend::buffer(buffer.as_mut_bytes()), lend::payload(data.as_bytes())) };
        let receiving = self.handle.recv(self.id, into, source, tag, true);
        let receiving = self.raise("sendrecv", receiving)?;
        let sending = match self.handle.send(self.id, Mode::Standard, data, dest, send_tag) {
            Ok(sending) => sending,
            Err(error) => {
                self.abandon(&receiving);
                return self.raise("sendrecv", Err(error));
            }
        };
        let sent = self.handle.finish(&sending);
        if sent.is_err() {
            self.cancel(&receiving);
        }
        let received = self.handle.finish(&receiving);
        self.raise(
            "sendrecv",
            match sent {
                Ok(_) => received,
                Err(error) => Err(received.err().unwrap_or(error)),
            },
        )
    }

    /// Whether a matching message is there (`MPI_Iprobe`); it stays there.
    ///
    /// # Errors
    /// As [`recv`](Self::recv), but for truncation.
    pub fn iprobe(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Option<Status>> {
        let (source, tag) = (source.into().into(), tag.into().matching()?);
        let found = self.handle.with(|engine| {
            engine.progress();
            Ok(engine.pml.probe(self.id, source, tag)?.map(Status::from))
        });
        self.raise("iprobe", found)
    }

    /// Waits until a matching message is there (`MPI_Probe`); it stays there.
    ///
    /// # Errors
    /// As [`iprobe`](Self::iprobe).
    pub fn probe(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Status> {
        let (source, tag) = (source.into().into(), tag.into().matching()?);
        let found = self.handle.wait(|engine| match engine.pml.probe(self.id, source, tag) {
            Ok(found) => found.map(|status| Ok(status.into())),
            Err(error) => Some(Err(error.into())),
        });
        self.raise("probe", found)
    }

    /// Takes a matching message out of the queue if one is there (`MPI_Improbe`): nobody else can receive it any more.
    ///
    /// # Errors
    /// As [`iprobe`](Self::iprobe).
    pub fn improbe(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Option<Message<T>>> {
        let (source, tag) = (source.into().into(), tag.into().matching()?);
        let found = self.handle.with(|engine| {
            engine.progress();
            let found = engine.pml.mprobe(self.id, source, tag)?;
            Ok(found.map(|(message, status)| Message::new(self.clone(), message, status.into())))
        });
        self.raise("improbe", found)
    }

    /// Waits for a matching message and takes it out of the queue (`MPI_Mprobe`).
    ///
    /// ```
    /// # let world = ironweave::World::init()?;
    /// # let comm = world.comm();
    /// # comm.send(&[5u32, 6], comm.rank(), 3)?;
    /// let message = comm.mprobe(comm.rank(), 3)?;
    /// let mut buffer = vec![0u32; message.status().count::<u32>()?];
    /// message.recv(&mut buffer)?;
    /// assert_eq!(buffer, [5, 6]);
    /// # Ok::<(), ironweave::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`iprobe`](Self::iprobe).
    pub fn mprobe(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Message<T>> {
        let (source, tag) = (source.into().into(), tag.into().matching()?);
        let found = self.handle.wait(|engine| match engine.pml.mprobe(self.id, source, tag) {
            Ok(found) => found.map(Ok),
            Err(error) => Some(Err(error.into())),
        });
        let (message, status) = self.raise("mprobe", found)?;
        Ok(Message::new(self.clone(), message, status.into()))
    }

    /// Starts non-blocking operations that are all over when it returns: see [`Scope`].
    ///
    /// # Errors
    /// The first error of an operation that `body` did not wait for itself.
    pub fn scope<'env, F, R>(&'env self, body: F) -> Result<R>
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env, T>) -> R,
    {
        Scope::run(self, body)
    }

    /// Cancels a receive that no longer makes sense; it still has to be finished.
    fn cancel(&self, ticket: &<T::Handle as Handle>::Ticket) {
        // Poisoned: nothing moves any more anyway. Still queued: nobody could have matched it.
        let _ = self.handle.wait(|engine| match ticket.started()? {
            Ok(Started::Pending(request)) => {
                engine.pml.cancel(request);
                Some(Ok(()))
            }
            Ok(Started::Done) | Err(_) => Some(Ok(())),
        });
    }

    /// Cancels a receive and waits for its end, whatever that is.
    fn abandon(&self, ticket: &<T::Handle as Handle>::Ticket) {
        self.cancel(ticket);
        let _ = self.handle.finish(ticket);
    }
}

impl<T: Threading> fmt::Debug for Comm<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Comm(rank {} of {})", self.rank, self.size)
    }
}

/// A message that [`Comm::mprobe`] took out of the queue.
#[must_use = "a message that is not received stays in memory until the world ends"]
#[derive(Debug)]
pub struct Message<T: Threading = Single> {
    comm: Comm<T>,
    id: MessageId,
    status: Status,
}

impl<T: Threading> Message<T> {
    fn new(comm: Comm<T>, id: MessageId, status: Status) -> Self {
        Message { comm, id, status }
    }

    /// What is known of it.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }

    /// Receives it (`MPI_Mrecv`).
    ///
    /// # Errors
    /// As [`Comm::recv`].
    pub fn recv<E: ElementMut>(self, buffer: &mut [E]) -> Result<Status> {
        // SAFETY: `wait` below returns only when the engine gave the buffer back.
        let into = unsafe { lend::buffer(buffer.as_mut_bytes()) };
        let request =
            self.comm.handle.with(|engine| Ok(engine.pml.mrecv(self.id, into.into())?))?;
        let received = self.comm.handle.wait(|engine| engine.poll(request));
        self.comm.raise("mrecv", received)
    }
}
