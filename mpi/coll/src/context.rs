//! Collectives of one communicator: gives calls their tags, and keeps schedules and runners that were used before.

use crate::CollError;
use crate::call::Call;
use crate::choose::Config;
use crate::memory::Memory;
use crate::op::Reduction;
use crate::place::Place;
use crate::plan::plan;
use crate::runner::{Patience, Runner};
use crate::tags::{BLOCKING, Tags};
use ironweave_btl::Btl;
use ironweave_pml::ob1::{CommId, Ob1};
use std::sync::Arc;

/// Runners kept for calls that were made before.
const KEPT: usize = 16;
/// Scratch memory of one that is kept, at most, in bytes.
const KEPT_SCRATCH: usize = 4 << 20;

/// A collective operation under way, or a persistent one. Its runner is what is polled.
#[derive(Debug)]
pub struct Operation {
    call: Call,
    runner: Runner,
    /// The tag of a persistent operation.
    tag: Option<i32>,
}

impl Operation {
    /// What runs it.
    #[inline]
    pub const fn runner(&mut self) -> &mut Runner {
        &mut self.runner
    }

    /// What it does.
    #[must_use]
    pub const fn call(&self) -> &Call {
        &self.call
    }

    /// Begins a run of a persistent operation.
    ///
    /// # Errors
    /// As [`Runner::start`]; [`CollError::WrongKind`] when it is not persistent.
    pub fn restart(
        &mut self,
        memory: Memory,
        reduction: Option<&Reduction>,
    ) -> Result<(), CollError> {
        let tag = self.tag.ok_or(CollError::WrongKind("operation that is not persistent"))?;
        self.runner.start(memory, reduction, tag)
    }
}

/// The collectives of one communicator. Every member has one, made alike, and makes the same calls in the same order.
///
/// A call that was made before costs no allocation and no planning.
///
/// # Example
/// A communicator of one process; larger ones differ in nothing but `poll` having to wait.
/// ```
/// use ironweave_btl::{Loopback, Peer, memory::{OwnedBuffer, SendRegion}};
/// use ironweave_coll::{Call, Config, Context, Elements, Memory, Op, Place, Poll, Reduction, Type};
/// use ironweave_pml::ob1::{self, CommSpec, Ob1};
///
/// let mut pml = Ob1::new(ob1::Config::new(Peer(0)));
/// pml.add_btl(Loopback::new(Peer(0)));
/// let comm = pml.add_comm(CommSpec::intra(0, 0, 0, vec![Peer(0)]))?;
/// let mut collectives = Context::new(comm, None, Place::intra(0, 1), Config::default().into());
///
/// let sum = Reduction::new(Op::Sum, Type::U8)?;
/// let elements = Elements { count: 3, extent: 1, commutative: true };
/// let result = OwnedBuffer::zeroed(3);
/// // SAFETY: `result` outlives the run and is not touched before it is over.
/// let recv = unsafe { result.recv_region() };
/// let memory = Memory { send: SendRegion::of_static(&[1, 2, 3]), recv };
/// let call = Call::Allreduce { elements, in_place: false };
/// let mut operation = collectives.start(&call, memory, Some(&sum))?;
/// let outcome = loop {
///     match operation.runner().poll(&mut pml) {
///         Poll::Ready(outcome) => break outcome,
///         Poll::Resolve(peer) => unreachable!("{peer}: there is nobody else"),
///         Poll::Pending => pml.progress(),
///     };
/// };
/// collectives.recycle(operation);
/// assert_eq!((outcome, result.as_slice()), (Ok(()), [1, 2, 3].as_slice()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Context {
    comm: CommId,
    local: Option<CommId>,
    place: Place,
    config: Arc<Config>,
    tags: Tags,
    /// The most recently used last. Boxed, so that starting one moves a pointer.
    #[expect(clippy::vec_box)]
    kept: Vec<Box<Operation>>,
}

impl Context {
    /// For a communicator: `place` is this process's in it; `local` the communicator of the own group, if it is an
    /// inter-communicator. All members give the same configuration.
    #[must_use]
    pub fn new(comm: CommId, local: Option<CommId>, place: Place, config: Arc<Config>) -> Self {
        Context {
            comm,
            local,
            place,
            config,
            tags: Tags::new(),
            kept: Vec::with_capacity(KEPT + 1),
        }
    }

    /// This process's place in the communicator.
    #[must_use]
    pub const fn place(&self) -> &Place {
        &self.place
    }

    /// Begins a call. Poll its runner once to have the first messages go out, and until it is ready; then
    /// [`recycle`](Self::recycle) it.
    ///
    /// # Errors
    /// Everything that is wrong with the arguments: nothing was begun, and the call does not count in the order of calls.
    pub fn start(
        &mut self,
        call: &Call,
        memory: Memory,
        reduction: Option<&Reduction>,
    ) -> Result<Box<Operation>, CollError> {
        let tag = self.tags.call();
        let operation = self.begin(call, memory, reduction, tag);
        if operation.is_err() {
            self.tags.undo();
        }
        operation
    }

    /// As [`start`](Self::start), for a caller that blocks: until this operation is over at this process, it begins no other
    /// one by this function. A call that blocks at one member does so at all.
    ///
    /// The call is run at one go, as long as each message goes out at once or comes while `patience` lasts;
    /// nothing else is moved on meanwhile, so progress the engine now and then. `None`: it is over; else what is left of it, which
    /// has `memory` until it is over.
    ///
    /// # Errors
    /// As `start`.
    #[inline(always)]
    pub fn run<B: Btl>(
        &mut self,
        pml: &mut Ob1<B>,
        call: &Call,
        memory: &Memory,
        reduction: Option<&Reduction>,
        patience: impl Patience,
    ) -> Result<Option<Box<Operation>>, CollError> {
        self.run_with(pml, call, memory, reduction, BLOCKING, patience)
    }

    /// As [`start`](Self::start), and runs the call as far as each message goes out at once or is there. `None`: it is over; else
    /// what is left of it.
    ///
    /// # Errors
    /// As `start`.
    #[inline(always)]
    pub fn run_now<B: Btl>(
        &mut self,
        pml: &mut Ob1<B>,
        call: &Call,
        memory: &Memory,
        reduction: Option<&Reduction>,
    ) -> Result<Option<Box<Operation>>, CollError> {
        let tag = self.tags.call();
        let run = self.run_with(pml, call, memory, reduction, tag, 0);
        if run.is_err() {
            self.tags.undo();
        }
        run
    }

    #[inline(always)]
    fn run_with<B: Btl>(
        &mut self,
        pml: &mut Ob1<B>,
        call: &Call,
        memory: &Memory,
        reduction: Option<&Reduction>,
        tag: i32,
        patience: impl Patience,
    ) -> Result<Option<Box<Operation>>, CollError> {
        let last = self.kept.len().wrapping_sub(1);
        let at = match self.kept.last() {
            Some(kept) if kept.call == *call => last,
            _ => self.keep(call)?,
        };
        let Operation { runner, .. } = &mut *self.kept[at];
        if runner.scratch() > KEPT_SCRATCH {
            let mut operation = self.kept.remove(at);
            operation.runner.start(memory.again(), reduction, tag)?;
            return Ok(Some(operation));
        }
        if runner.start_at_one_go(pml, memory, reduction, tag, patience)? {
            return Ok(None);
        }
        Ok(Some(self.kept.remove(at)))
    }

    /// Where the operation of this call, which was not the last one, is among those that are kept.
    #[inline(never)]
    fn keep(&mut self, call: &Call) -> Result<usize, CollError> {
        if let Some(at) = self.kept.iter().rposition(|kept| kept.call == *call) {
            // One place on: calls that are made in turns stay, and none of them is moved far.
            self.kept.swap(at, at + 1);
            return Ok(at + 1);
        }
        let operation = self.plan(call)?;
        if self.kept.len() >= KEPT {
            self.kept.remove(0);
        }
        self.kept.push(operation);
        Ok(self.kept.len() - 1)
    }

    #[inline(always)]
    fn begin(
        &mut self,
        call: &Call,
        memory: Memory,
        reduction: Option<&Reduction>,
        tag: i32,
    ) -> Result<Box<Operation>, CollError> {
        let mut operation = self.operation(call)?;
        match operation.runner.start(memory, reduction, tag) {
            Ok(()) => Ok(operation),
            Err(error) => {
                self.recycle(operation);
                Err(error)
            }
        }
    }

    /// Makes a persistent operation, inactive: start it with [`Operation::restart`].
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn init(&mut self, call: &Call) -> Result<Box<Operation>, CollError> {
        let mut operation = self.plan(call)?;
        operation.tag = Some(self.tags.persistent());
        Ok(operation)
    }

    /// Keeps an operation whose run is over for the next call like it. One that is running is dropped.
    #[inline]
    pub fn recycle(&mut self, operation: Box<Operation>) {
        let fits = operation.runner.scratch() <= KEPT_SCRATCH && operation.tag.is_none();
        if fits && !operation.runner.is_active() {
            self.kept.push(operation);
            if self.kept.len() > KEPT {
                self.kept.remove(0);
            }
        }
    }

    #[inline(always)]
    fn operation(&mut self, call: &Call) -> Result<Box<Operation>, CollError> {
        match self.kept.pop_if(|kept| kept.call == *call) {
            Some(last) => Ok(last),
            None => self.earlier(call),
        }
    }

    #[cold]
    fn earlier(&mut self, call: &Call) -> Result<Box<Operation>, CollError> {
        match self.kept.iter().rposition(|kept| kept.call == *call) {
            Some(at) => Ok(self.kept.remove(at)),
            None => self.plan(call),
        }
    }

    fn plan(&self, call: &Call) -> Result<Box<Operation>, CollError> {
        let schedule = Arc::new(plan(call, &self.place, &self.config)?);
        let runner = Runner::new(schedule, self.comm, self.local);
        Ok(Box::new(Operation { call: call.clone(), runner, tag: None }))
    }
}
