//! What is to be written to one connection: copied bytes and borrowed payloads, in order.
//!
//! Copied frames share one byte buffer; borrowed payloads are written straight from user memory by vectored
//! sends, and their descriptors come out when the kernel has the last byte.

use crate::wire::{PREFIX, data_prefix};
use ironweave_btl::Descriptor;
use rustix::fd::BorrowedFd;
use rustix::io::{Errno, IoSlice};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Never SIGPIPE: the host program's handling of it is not ours.
pub const SEND: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);
/// Pieces in one vectored send at most.
const PIECES: usize = 32;
/// Borrowed payloads that may wait.
const BORROWED_MAX: usize = 1024;

#[derive(Debug)]
enum Item {
    /// The next `len` bytes of the buffer; they end `frames` frames.
    Copied { len: usize, frames: usize },
    /// A payload of `len` bytes of which `sent` are written; its prefix and header are copied bytes before it.
    Borrowed { descriptor: Descriptor, len: usize, sent: usize },
}

/// The queue of one connection.
#[derive(Debug, Default)]
pub struct Outbound {
    items: VecDeque<Item>,
    bytes: Vec<u8>,
    /// Bytes at the front of `bytes` that are written already.
    written: usize,
    frames: usize,
    borrowed: usize,
}

/// How far a flush came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flushed {
    /// Everything is with the kernel.
    All,
    /// The kernel takes no more at the moment.
    Blocked,
}

impl Outbound {
    /// Nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Frames that wait, wholly or in part.
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// Copied bytes that wait.
    pub fn queued_bytes(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// Whether a copied frame of `len` bytes may be added under a bound of `limit` bytes. One always may when no
    /// copied bytes wait.
    #[inline]
    pub fn has_room(&self, len: usize, limit: usize) -> bool {
        let queued = self.queued_bytes();
        queued == 0 || queued + len <= limit
    }

    /// Whether a borrowed payload may be added.
    pub fn has_room_borrowed(&self) -> bool {
        self.borrowed < BORROWED_MAX
    }

    /// Adds bytes that end `frames` frames.
    pub fn push_copied(&mut self, bytes: &[u8], frames: usize) {
        self.bytes.extend_from_slice(bytes);
        self.note_copied(bytes.len(), frames);
    }

    /// Adds a data frame whose payload `pack` writes.
    pub fn push_packed(&mut self, header: &[u8], len: usize, pack: impl FnOnce(&mut [u8])) {
        self.bytes.extend_from_slice(&data_prefix(header.len(), len));
        self.bytes.extend_from_slice(header);
        let start = self.bytes.len();
        self.bytes.resize(start + len, 0);
        pack(&mut self.bytes[start..]);
        self.note_copied(PREFIX + header.len() + len, 1);
    }

    fn note_copied(&mut self, more: usize, ended: usize) {
        self.frames += ended;
        match self.items.back_mut() {
            Some(Item::Copied { len, frames }) => {
                *len += more;
                *frames += ended;
            }
            _ => self.items.push_back(Item::Copied { len: more, frames: ended }),
        }
    }

    /// Adds a data frame with a borrowed payload of `len` bytes.
    pub fn push_borrowed(&mut self, descriptor: Descriptor, len: usize) {
        let header = descriptor.header.as_bytes();
        self.bytes.extend_from_slice(&data_prefix(header.len(), len));
        self.bytes.extend_from_slice(header);
        self.note_copied(PREFIX + header.len(), 0);
        self.items.push_back(Item::Borrowed { descriptor, len, sent: 0 });
        self.frames += 1;
        self.borrowed += 1;
    }

    /// Writes until all is written or the kernel takes no more. Descriptors whose last byte was taken go to
    /// `done`. At most `first` bytes go into the first call, at most `chunk` into each other.
    ///
    /// # Errors
    /// Any `errno` that is not a reason to wait or to repeat.
    pub fn flush(
        &mut self,
        socket: BorrowedFd<'_>,
        first: usize,
        chunk: usize,
        done: &mut VecDeque<Descriptor>,
    ) -> Result<Flushed, Errno> {
        let mut most = first;
        while !self.items.is_empty() {
            let (pieces, offered) = self.gather(most);
            let sent = if let [piece] = &pieces[..] {
                rustix::net::send(socket, piece, SEND)
            } else {
                sendmsg(socket, &pieces, &mut SendAncillaryBuffer::default(), SEND)
            };
            drop(pieces);
            match sent {
                Ok(sent) => {
                    self.advance(sent, done);
                    if sent < offered {
                        return Ok(Flushed::Blocked);
                    }
                    most = chunk;
                }
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => return Ok(Flushed::Blocked),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(Flushed::All)
    }

    /// The next bytes to write, as pieces, and how many they are.
    fn gather(&self, chunk: usize) -> (SmallVec<[IoSlice<'_>; PIECES]>, usize) {
        let mut pieces = SmallVec::new();
        let mut total = 0;
        let mut at = self.written;
        'items: for item in &self.items {
            match item {
                Item::Copied { len, .. } => {
                    pieces.push(IoSlice::new(&self.bytes[at..at + len]));
                    at += len;
                    total += len;
                }
                Item::Borrowed { descriptor, sent, .. } => {
                    let mut skip = *sent;
                    for region in &descriptor.payload {
                        let bytes = region.as_slice();
                        if skip >= bytes.len() {
                            skip -= bytes.len();
                            continue;
                        }
                        if pieces.len() == PIECES || total >= chunk {
                            break 'items;
                        }
                        let take = (bytes.len() - skip).min(chunk - total);
                        pieces.push(IoSlice::new(&bytes[skip..skip + take]));
                        total += take;
                        if take < bytes.len() - skip {
                            break 'items;
                        }
                        skip = 0;
                    }
                }
            }
            if pieces.len() == PIECES || total >= chunk {
                break;
            }
        }
        (pieces, total)
    }

    /// `sent` more bytes are with the kernel.
    fn advance(&mut self, mut sent: usize, done: &mut VecDeque<Descriptor>) {
        loop {
            match self.items.front_mut() {
                Some(Item::Copied { len, frames }) => {
                    let take = sent.min(*len);
                    self.written += take;
                    sent -= take;
                    *len -= take;
                    if *len > 0 {
                        break;
                    }
                    self.frames -= *frames;
                    self.items.pop_front();
                }
                Some(Item::Borrowed { len, sent: so_far, .. }) => {
                    let take = sent.min(*len - *so_far);
                    *so_far += take;
                    sent -= take;
                    if *so_far < *len {
                        break;
                    }
                    self.frames -= 1;
                    self.borrowed -= 1;
                    if let Some(Item::Borrowed { descriptor, .. }) = self.items.pop_front() {
                        done.push_back(descriptor);
                    }
                }
                None => break,
            }
        }
        debug_assert_eq!(sent, 0, "more was sent than offered");
        if self.written == self.bytes.len() {
            self.bytes.clear();
            self.written = 0;
        } else if self.written > self.bytes.len() / 2 && self.written > 64 << 10 {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
    }

    /// Everything borrowed, given back; nothing waits any more.
    pub fn purge(&mut self) -> impl Iterator<Item = Descriptor> + use<> {
        let items = std::mem::take(self).items;
        items.into_iter().filter_map(|item| match item {
            Item::Borrowed { descriptor, .. } => Some(descriptor),
            Item::Copied { .. } => None,
        })
    }
}
