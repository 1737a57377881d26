//! The launcher's own standard output and error: puts ranks' bytes back together into lines, so that
//! no line is torn by another rank's, tags them if asked, and writes without ever blocking the loop.
//!
//! A line is held until its newline or its rank's end, at most 64 KiB of it. What the reader
//! of our output does not take is queued; past a megabyte hosts get no new credit and ranks wait in
//! their own writes, as they would without a launcher.

use super::messages::{OUTPUT_WINDOW, Stream};
use super::pollset::{PollSet, Token};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::io::{Stderr, Stdout};
use std::os::fd::{AsFd, BorrowedFd};

/// The longest part of a line held back.
const HELD: usize = 64 * 1024;
/// How much may wait for our reader before ranks are slowed down.
const QUEUED: usize = OUTPUT_WINDOW;
/// A pipe or terminal that is writable takes this much without blocking (PIPE_BUF).
const ATOMIC: usize = 4096;
/// What a regular file is given at once.
const LARGE: usize = 256 * 1024;

/// Both outputs.
#[derive(Debug)]
pub struct Output {
    sinks: [Sink; 2],
    held: HashMap<(u32, Stream), Vec<u8>>,
    tag_width: Option<usize>,
    by_line: bool,
    owed: Vec<(usize, usize)>,
}

#[derive(Debug)]
struct Sink {
    target: Target,
    queue: VecDeque<u8>,
    chunk: usize,
    state: Reader,
}

/// Who reads what a sink writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    There,
    /// Gone, and nobody has been told.
    Left,
    /// Gone; ranks have been told.
    Gone,
}

#[derive(Debug)]
enum Target {
    Out(Stdout),
    Err(Stderr),
}

impl AsFd for Target {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Target::Out(out) => out.as_fd(),
            Target::Err(err) => err.as_fd(),
        }
    }
}

impl Output {
    /// This process's outputs for a job of `size` ranks, lines tagged with their rank if `tag`.
    pub fn new(size: u32, tag: bool) -> Output {
        let digits = size.saturating_sub(1).to_string().len();
        Output {
            sinks: [
                Sink::new(Target::Out(std::io::stdout())),
                Sink::new(Target::Err(std::io::stderr())),
            ],
            held: HashMap::new(),
            tag_width: tag.then_some(digits),
            // One rank alone tears nobody's line: its prompts show at once.
            by_line: tag || size > 1,
            owed: Vec::new(),
        }
    }

    /// Takes bytes a rank of host `node` wrote.
    pub fn take(&mut self, node: usize, rank: u32, stream: Stream, data: &[u8]) {
        self.owed.push((node, data.len()));
        let mut held = self.held.remove(&(rank, stream)).unwrap_or_default();
        let mut rest = data;
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let (line, after) = rest.split_at(end + 1);
            self.line(rank, stream, &[&held, line]);
            held.clear();
            rest = after;
        }
        held.extend_from_slice(rest);
        if held.len() >= HELD || (!self.by_line && !held.is_empty()) {
            self.line(rank, stream, &[&held]);
            held.clear();
        }
        if !held.is_empty() {
            self.held.insert((rank, stream), held);
        }
    }

    /// A rank will write no more: what was held of its last lines goes out.
    pub fn end(&mut self, rank: u32) {
        for stream in [Stream::Out, Stream::Err] {
            if let Some(held) = self.held.remove(&(rank, stream)) {
                let newline: &[u8] = if self.tag_width.is_some() { b"\n" } else { b"" };
                self.line(rank, stream, &[&held, newline]);
            }
        }
    }

    /// Every rank will write no more.
    pub fn end_all(&mut self) {
        let ranks: Vec<u32> = self.held.keys().map(|(rank, _)| *rank).collect();
        ranks.into_iter().for_each(|rank| self.end(rank));
    }

    /// Says something of the launcher's own, on standard error.
    pub fn note(&mut self, text: &str) {
        self.sinks[1].push(format!("ironweave: {text}\n").as_bytes());
    }

    /// What hosts may be told has been taken: `(node, bytes)`.
    pub fn taken(&mut self) -> Vec<(usize, usize)> {
        match self.sinks.iter().all(|sink| sink.queue.len() < QUEUED) {
            true => std::mem::take(&mut self.owed),
            false => Vec::new(),
        }
    }

    /// The streams whose reader has gone since the last call.
    pub fn left(&mut self) -> Vec<Stream> {
        let streams = [Stream::Out, Stream::Err];
        let left = self.sinks.iter_mut().zip(streams).filter_map(|(sink, stream)| {
            (sink.state == Reader::Left).then(|| {
                sink.state = Reader::Gone;
                stream
            })
        });
        left.collect()
    }

    /// Whether nothing waits to be written.
    pub fn is_empty(&self) -> bool {
        self.sinks.iter().all(|sink| sink.queue.is_empty())
    }

    /// Waits for room where something waits to be written.
    pub fn register<'a>(&'a self, set: &mut PollSet<'a>) {
        for (which, sink) in self.sinks.iter().enumerate() {
            if !sink.queue.is_empty() {
                set.writable(&sink.target, Token::Sink(which));
            }
        }
    }

    /// There is room.
    pub fn ready(&mut self, which: usize) {
        self.sinks[which].write();
    }

    fn line(&mut self, rank: u32, stream: Stream, parts: &[&[u8]]) {
        let sink = &mut self.sinks[usize::from(stream == Stream::Err)];
        if let Some(width) = self.tag_width {
            sink.push(format!("[{rank:>width$}] ").as_bytes());
        }
        parts.iter().for_each(|part| sink.push(part));
    }
}

impl Sink {
    fn new(target: Target) -> Sink {
        let is_file = rustix::fs::fstat(&target)
            .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file());
        let chunk = if is_file { LARGE } else { ATOMIC };
        Sink { target, queue: VecDeque::new(), chunk, state: Reader::There }
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.state == Reader::There {
            self.queue.extend(bytes);
        }
    }

    fn write(&mut self) {
        let (front, _) = self.queue.as_slices();
        let piece = &front[..front.len().min(self.chunk)];
        match rustix::io::write(&self.target, piece) {
            Ok(length) => drop(self.queue.drain(..length)),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => {
                if error != Errno::PIPE {
                    tracing::warn!(%error, "output cannot be written");
                }
                self.state = Reader::Left;
                self.queue = VecDeque::new();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(output: &Output, which: usize) -> String {
        String::from_utf8(output.sinks[which].queue.iter().copied().collect()).unwrap()
    }

    #[test]
    fn lines_of_two_ranks_are_not_torn() {
        let mut output = Output::new(2, false);
        output.take(0, 0, Stream::Out, b"one ");
        output.take(0, 1, Stream::Out, b"two\nthree");
        output.take(0, 0, Stream::Out, b"line\n");
        output.end(1);
        assert_eq!(said(&output, 0), "two\none line\nthree");
        assert_eq!(output.taken(), [(0, 4), (0, 9), (0, 5)]);
    }

    #[test]
    fn tags_are_as_wide_as_the_largest_rank_and_close_the_last_line() {
        let mut output = Output::new(11, true);
        output.take(0, 3, Stream::Err, b"x\n\ny");
        output.take(0, 10, Stream::Out, b"z\n");
        output.end_all();
        assert_eq!(said(&output, 1), "[ 3] x\n[ 3] \n[ 3] y\n");
        assert_eq!(said(&output, 0), "[10] z\n");
    }

    #[test]
    fn a_rank_alone_is_heard_at_once() {
        let mut output = Output::new(1, false);
        output.take(0, 0, Stream::Out, b"a\nname? ");
        assert_eq!(said(&output, 0), "a\nname? ");
    }

    #[test]
    fn an_endless_line_is_not_held_for_ever_and_a_full_queue_pays_no_credit() {
        let mut output = Output::new(2, false);
        output.take(0, 0, Stream::Out, &vec![b'a'; HELD]);
        assert_eq!(said(&output, 0).len(), HELD);
        output.take(0, 0, Stream::Out, &vec![b'\n'; QUEUED]);
        assert!(output.taken().is_empty());
    }
}
