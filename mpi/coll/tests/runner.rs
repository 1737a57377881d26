//! What a runner answers, by two processes over the leanest transport.
#![allow(unsafe_code)] // regions of live buffers

#[path = "../../../pml/tests/util/pipe.rs"]
mod pipe;

use ironweave_btl::memory::{OwnedBuffer, SendRegion};
use ironweave_btl::{Loopback, Peer};
use ironweave_coll::{
    Call, CollError, Config, Context, Elements, Memory, Op, Operation, Place, Poll, Reduction,
    Root, Runner, Type, plan,
};
use ironweave_pml::ob1::{self, CommId, CommSpec, Ob1, PmlError};
use pipe::Pipe;
use std::sync::Arc;

struct Process {
    engine: Ob1<Pipe>,
    comm: CommId,
    context: Context,
}

fn processes() -> [Process; 2] {
    let mut rank = 0;
    pipe::engines().map(|(engine, comm)| {
        let context = Context::new(comm, None, Place::intra(rank, 2), Config::default().into());
        rank += 1;
        Process { engine, comm, context }
    })
}

/// Memory that lives for ever, so that no region can outlive it.
fn lasting(len: usize) -> &'static OwnedBuffer {
    Box::leak(Box::new(OwnedBuffer::zeroed(len)))
}

/// Lends a buffer, and a contribution.
fn lend(send: &'static [u8], recv: &'static OwnedBuffer) -> Memory {
    // SAFETY: the buffer is never freed, and the tests read it only when a run is over.
    let recv = unsafe { recv.recv_region() };
    Memory { send: SendRegion::of_static(send), recv }
}

/// Polls both until they answer or nothing happens any more.
fn poll(processes: &mut [Process; 2], operations: &mut [Box<Operation>; 2]) -> [Poll; 2] {
    let mut answers = [Poll::Pending, Poll::Pending];
    for _ in 0..100 {
        for at in 0..2 {
            let Process { engine, .. } = &mut processes[at];
            engine.progress();
            if answers[at] == Poll::Pending {
                answers[at] = operations[at].runner().poll(engine);
            }
        }
    }
    answers
}

const DONE: Poll = Poll::Ready(Ok(()));

fn allreduce(count: usize) -> Call {
    let elements = Elements { count, extent: 8, commutative: true };
    Call::Allreduce { elements, in_place: false }
}

fn sum() -> Reduction {
    Reduction::new(Op::Sum, Type::U64).expect("it is defined")
}

#[test]
fn persistent_operations_start_in_any_order_any_number_of_times() {
    let mut processes = processes();
    let calls = [allreduce(1), Call::Bcast { root: Root::Rank(1), len: 3 }, Call::Barrier];
    let mut operations: Vec<[Box<Operation>; 2]> = calls
        .iter()
        .map(|call| processes.each_mut().map(|p| p.context.init(call).expect("right arguments")))
        .collect();
    let buffers = [[lasting(8), lasting(3), lasting(0)], [lasting(8), lasting(3), lasting(0)]];
    for round in 0..50 {
        for (at, order) in [[0, 1, 2], [2, 1, 0]].into_iter().enumerate() {
            for number in order {
                let memory = lend(&[1, 0, 0, 0, 0, 0, 0, 0], buffers[at][number]);
                if at == 1 && number == 1 {
                    memory.recv.write(0, &[round, 5, 6]);
                }
                let operation = &mut operations[number][at];
                operation.restart(memory, Some(&sum())).expect("it is not running");
                // Something goes out now, in the order of starts.
                let _ = operation.runner().poll(&mut processes[at].engine);
            }
        }
        for operations in &mut operations {
            assert_eq!(poll(&mut processes, operations), [DONE, DONE]);
        }
        assert_eq!(buffers[0][1].as_slice(), [round, 5, 6]);
        assert_eq!(buffers[1][0].as_slice(), 2u64.to_ne_bytes());
    }
}

#[test]
fn wrong_starts_are_answered_and_do_not_count() {
    let mut processes = processes();
    let short = lend(&[0; 8], lasting(7));
    let error = processes[0].context.start(&allreduce(1), short, Some(&sum())).expect_err("short");
    assert_eq!(error, CollError::ShortBuffer { which: "receive", needed: 8, got: 7 });
    let other = Reduction::new(Op::Max, Type::I32).expect("it is defined");
    let memory = lend(&[0; 8], lasting(8));
    let error = processes[0].context.start(&allreduce(1), memory, Some(&other));
    let wrong = CollError::WrongElements { expected: 8, got: 4 };
    assert_eq!(error.expect_err("other elements"), wrong);
    // The other process knows nothing of those two.
    let results = [lasting(8), lasting(8)];
    let mut operations = [0, 1].map(|at| {
        let memory = lend(&[3, 0, 0, 0, 0, 0, 0, 0], results[at]);
        processes[at].context.start(&allreduce(1), memory, Some(&sum())).expect("right arguments")
    });
    assert_eq!(
        operations[0].restart(Memory::none(), None),
        Err(CollError::WrongKind("operation that is not persistent"))
    );
    assert_eq!(poll(&mut processes, &mut operations), [DONE, DONE]);
    assert_eq!(results[0].as_slice(), 6u64.to_ne_bytes());
}

#[test]
fn different_arguments_end_in_an_error_where_they_show() {
    let mut processes = processes();
    let call = |len| Call::Bcast { root: Root::Rank(0), len };
    for (sent, expected) in [(5, 8), (8, 5)] {
        let mut operations = [(0, sent), (1, expected)].map(|(at, len): (usize, usize)| {
            let memory = lend(&[], lasting(len));
            processes[at].context.start(&call(len), memory, None).expect("right arguments")
        });
        let [root, other] = poll(&mut processes, &mut operations);
        assert_eq!(root, DONE);
        let want = match sent {
            5 => CollError::Mismatch { rank: 0, expected: 8, got: 5 },
            _ => CollError::Pml(PmlError::Truncated { sent: 8, capacity: 5 }),
        };
        assert_eq!(other, Poll::Ready(Err(want)));
    }
}

#[test]
fn a_run_that_is_given_up_ends_when_its_messages_are_over() {
    let mut processes = processes();
    let result = lasting(1 << 20);
    let call = Call::Alltoall { len: 1 << 19, block: 1 << 19, in_place: false };
    let data: &'static [u8] = Box::leak(vec![1; 1 << 20].into_boxed_slice());
    let mut operation =
        processes[0].context.start(&call, lend(data, result), None).expect("right arguments");
    assert_eq!(operation.runner().poll(&mut processes[0].engine), Poll::Pending);
    let error = CollError::Pml(PmlError::ProcFailed { rank: 1 });
    operation.runner().fail(&mut processes[0].engine, error.clone());
    // The long send was announced: only the other process can end it.
    for process in &mut processes {
        process.engine.progress();
    }
    assert_eq!(operation.runner().poll(&mut processes[0].engine), Poll::Pending);
    let comm = processes[1].comm;
    processes[1].engine.interrupt_collectives(comm);
    processes[1].engine.progress();
    processes[0].engine.progress();
    assert_eq!(operation.runner().poll(&mut processes[0].engine), Poll::Ready(Err(error)));
    assert!(!operation.runner().is_active());
    assert!(result.as_slice().iter().all(|&byte| byte == 0), "nothing came");
}

#[test]
fn addresses_are_asked_for() {
    let mut engine = Ob1::new(ob1::Config::new(Peer(0)));
    engine.add_btl(Loopback::new(Peer(0)));
    let comm =
        engine.add_comm(CommSpec::intra(0, 0, 0, vec![Peer(0), Peer(1)])).expect("the first");
    let schedule = plan(&Call::Barrier, &Place::intra(0, 2), &Config::default());
    let mut runner = Runner::new(Arc::new(schedule.expect("right")), comm, None);
    runner.start(Memory::none(), None, -20).expect("it is idle");
    assert_eq!(runner.start(Memory::none(), None, -20), Err(CollError::Active));
    assert_eq!(runner.poll(&mut engine), Poll::Resolve(Peer(1)));
    assert_eq!(runner.poll(&mut engine), Poll::Resolve(Peer(1)), "until it is known");
    engine.proc_failed(Peer(1));
    let mut answer = runner.poll(&mut engine);
    while answer == Poll::Pending {
        engine.progress();
        answer = runner.poll(&mut engine);
    }
    assert_eq!(answer, Poll::Ready(Err(CollError::Pml(PmlError::ProcFailed { rank: 1 }))));
}
