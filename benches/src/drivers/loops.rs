//! The timed loops of `LOOPS.md`. One block each: barrier, warm-up, one timed interval.
//!
//! Nothing is allocated, printed or checked inside the interval. An operation that fails ends the block with its error.

use super::sync::{barrier, mean};
use crate::spec::{Spec, Test, warmup};
use ironweave::{Comm, Request, Result, Scope};
use std::time::Instant;

/// Buffers begin on a page, as the C twin's do.
const PAGE: usize = 4096;

/// Memory of one test at one size.
pub struct Buffers {
    send: Paged,
    receive: Paged,
    size: usize,
    window: usize,
}

impl Buffers {
    /// A send buffer, and a receive buffer; one for each message of a window of `window` where the test has windows.
    #[must_use]
    pub fn new(spec: Spec, window: usize) -> Self {
        let receives = if spec.test.windowed() { window } else { 1 };
        let (send, receive) = (Paged::new(b'a', spec.size), Paged::new(b'b', spec.size * receives));
        Self { send, receive, size: spec.size, window }
    }
}

/// Bytes that begin on a page.
struct Paged {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Paged {
    fn new(fill: u8, length: usize) -> Self {
        let memory = vec![fill; length + PAGE];
        let start = memory.as_ptr().align_offset(PAGE);
        Self { memory, start, length }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..][..self.length]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.length]
    }
}

/// Runs one block; every rank calls it. The value is valid on rank 0, in the test's unit.
///
/// # Errors
/// The first operation's that failed.
pub fn block(comm: &Comm, spec: Spec, buffers: &mut Buffers) -> Result<f64> {
    let pairs = comm.size() / 2;
    let messages = (spec.iterations * buffers.window) as f64;
    let megabytes = messages * spec.size as f64 / 1e6;
    match spec.test {
        Test::Latency => ping_pong(comm, spec, buffers, 1),
        Test::MultiLat => mean(comm, ping_pong(comm, spec, buffers, pairs)?),
        Test::Exchange => mean(comm, exchange(comm, spec, buffers)?),
        Test::Bw => Ok(megabytes / windows_one_way(comm, spec, buffers, 1)?),
        Test::Bibw => Ok(2.0 * megabytes / windows_both_ways(comm, spec, buffers)?),
        Test::MbwMr => {
            let seconds = windows_one_way(comm, spec, buffers, pairs)?;
            Ok(f64::from(pairs) * messages / mean(comm, seconds)?)
        }
        // Programs refuse these earlier.
        Test::Barrier | Test::Bcast | Test::Allreduce | Test::Alltoall | Test::Vector => no_twin(),
        Test::Ibcast | Test::Iallreduce | Test::Startup | Test::Memory => no_twin(),
    }
}

fn no_twin() -> Result<f64> {
    Err(ironweave::Error::Argument("this loop is in the C program only".to_owned()))
}

/// Runs `iteration` for the warm-up and then timed; the timed part in seconds.
#[inline]
fn timed(comm: &Comm, spec: Spec, mut iteration: impl FnMut() -> Result<()>) -> Result<f64> {
    barrier(comm)?;
    for _ in 0..warmup(spec.iterations) {
        iteration()?;
    }
    let start = Instant::now();
    for _ in 0..spec.iterations {
        iteration()?;
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Whether this rank starts, and its partner, when rank r is paired with r + `pairs`.
fn role(comm: &Comm, pairs: u32) -> (bool, u32) {
    let first = comm.rank() < pairs;
    (first, if first { comm.rank() + pairs } else { comm.rank() - pairs })
}

/// One-way µs.
fn ping_pong(comm: &Comm, spec: Spec, buffers: &mut Buffers, pairs: u32) -> Result<f64> {
    let (first, peer) = role(comm, pairs);
    let (send, receive) = (buffers.send.bytes(), &mut buffers.receive.bytes_mut()[..buffers.size]);
    let seconds = timed(comm, spec, || {
        if first {
            comm.send(send, peer, 1)?;
            comm.recv(receive, peer, 1)?;
        } else {
            comm.recv(receive, peer, 1)?;
            comm.send(send, peer, 1)?;
        }
        Ok(())
    })?;
    Ok(seconds * 1e6 / (2.0 * spec.iterations as f64))
}

/// µs an exchange with both neighbours of the ring.
fn exchange(comm: &Comm, spec: Spec, buffers: &mut Buffers) -> Result<f64> {
    let (rank, size) = (comm.rank(), comm.size());
    let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
    let (send, receive) = (buffers.send.bytes(), &mut buffers.receive.bytes_mut()[..buffers.size]);
    let seconds = timed(comm, spec, || {
        comm.sendrecv(send, right, 2, receive, left, 2)?;
        comm.sendrecv(send, left, 3, receive, right, 3)?;
        Ok(())
    })?;
    Ok(seconds * 1e6 / spec.iterations as f64)
}

/// Waits for all sends of a window; at the first error the scope's end waits for the rest.
fn wait_all(requests: &mut Vec<Request<'_, '_, ()>>) -> Result<()> {
    requests.drain(..).try_for_each(|mut request| request.wait().map(drop))
}

/// Buffers that the receives of a window own while they are under way, and give back when they are over.
struct Inbox<'scope, 'env> {
    free: Vec<&'scope mut [u8]>,
    open: Vec<Request<'scope, 'env, &'scope mut [u8]>>,
}

impl<'scope, 'env> Inbox<'scope, 'env> {
    fn new(memory: &'scope mut [u8], size: usize, window: usize) -> Self {
        let mut rest = memory;
        let mut free = Vec::with_capacity(window);
        for _ in 0..window {
            let (one, others) = rest.split_at_mut(size);
            free.push(one);
            rest = others;
        }
        Self { free, open: Vec::with_capacity(window) }
    }

    /// Posts all receives.
    fn post(&mut self, scope: &'scope Scope<'scope, 'env>, from: u32, tag: i32) -> Result<()> {
        for buffer in self.free.drain(..) {
            self.open.push(scope.irecv(buffer, from, tag)?);
        }
        Ok(())
    }

    /// Waits for all of them.
    fn wait_all(&mut self) -> Result<()> {
        for request in self.open.drain(..) {
            self.free.push(request.finish()?.1);
        }
        Ok(())
    }
}

/// Posts all sends of a window.
fn post_sends<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    data: &'scope [u8],
    open: &mut Vec<Request<'scope, 'env, ()>>,
    window: usize,
    (to, tag): (u32, i32),
) -> Result<()> {
    for _ in 0..window {
        open.push(scope.isend(data, to, tag)?);
    }
    Ok(())
}

/// Windows one way, answered by 4 bytes each; seconds.
fn windows_one_way(comm: &Comm, spec: Spec, buffers: &mut Buffers, pairs: u32) -> Result<f64> {
    let (first, peer) = role(comm, pairs);
    let window = buffers.window;
    let (size, send) = (buffers.size, buffers.send.bytes());
    let receive = buffers.receive.bytes_mut();
    let mut ack = [0u8; 4];
    comm.scope(|scope| {
        if first {
            let mut open = Vec::with_capacity(window);
            timed(comm, spec, || {
                post_sends(scope, send, &mut open, window, (peer, 100))?;
                wait_all(&mut open)?;
                comm.recv(&mut ack, peer, 101).map(drop)
            })
        } else {
            let mut inbox = Inbox::new(receive, size, window);
            timed(comm, spec, || {
                inbox.post(scope, peer, 100)?;
                inbox.wait_all()?;
                comm.send(&ack, peer, 101)
            })
        }
    })?
}

/// Windows both ways between ranks 0 and 1; seconds.
fn windows_both_ways(comm: &Comm, spec: Spec, buffers: &mut Buffers) -> Result<f64> {
    let peer = 1 - comm.rank();
    let (mine, theirs) = if comm.rank() == 0 { (100, 10) } else { (10, 100) };
    let window = buffers.window;
    let (size, send) = (buffers.size, buffers.send.bytes());
    let receive = buffers.receive.bytes_mut();
    comm.scope(|scope| {
        let mut inbox = Inbox::new(receive, size, window);
        let mut open = Vec::with_capacity(window);
        timed(comm, spec, || {
            inbox.post(scope, peer, theirs)?;
            post_sends(scope, send, &mut open, window, (peer, mine))?;
            wait_all(&mut open)?;
            inbox.wait_all()
        })
    })?
}
