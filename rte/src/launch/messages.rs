//! What the head of a job and its hosts say to each other. The same messages travel in memory to
//! the launcher's own host and over a [`link`](super::link) to the others.

use crate::liveness::{FailedRank, How};
use crate::pmi::server::Request;
use crate::starved::Incarnation;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;

/// How much output a host may have sent that the head has not taken yet, in bytes.
pub const OUTPUT_WINDOW: usize = 1 << 20;
/// The most bytes of output or input in one message.
pub const CHUNK: usize = 64 * 1024;

/// Whether ranks are bound to cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum Bind {
    /// One core a rank, round-robin.
    Core,
    /// Leave it to the scheduler.
    None,
}

/// A program of a job. Most jobs have one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct App {
    /// How many ranks run it.
    pub ranks: u32,
    /// The program, looked up in `PATH` unless it has a slash.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// What its environment has beyond, or instead of, the job's.
    pub env: Vec<(OsString, OsString)>,
    /// The directory it starts in, if not the job's.
    pub directory: Option<OsString>,
}

/// What a host starts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LaunchSpec {
    /// The job's name; the name of its key-value space too.
    pub job: String,
    /// The host's name, for messages.
    pub host: String,
    /// Ranks in the job.
    pub size: u32,
    /// The first rank of this host; its ranks are consecutive.
    pub first_rank: u32,
    /// How many ranks it starts.
    pub count: u32,
    /// The job's programs; each in turn takes its number of ranks.
    pub apps: Vec<App>,
    /// The environment that every program's own is added to.
    pub env: Vec<(OsString, OsString)>,
    /// The directory that programs start in, and look for their own from.
    pub directory: OsString,
    /// `--mca` as handed on to ranks.
    pub mca: String,
    /// Binding asked for; by default cores if there are enough.
    pub bind: Option<Bind>,
}

impl LaunchSpec {
    /// The program of `rank`, and its number among the job's programs.
    ///
    /// # Panics
    /// The programs have fewer ranks than the job: whoever made this did not count.
    pub fn app_of(&self, rank: u32) -> (usize, &App) {
        let mut after = 0;
        let found = self.apps.iter().enumerate().find(|(_, app)| {
            after += app.ranks;
            rank < after
        });
        found.expect("programs have as many ranks as the job, see `run`")
    }
}

/// Which of a rank's two outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// From a host to the head.
#[derive(Debug, Serialize, Deserialize)]
pub enum Up {
    /// A rank could not be started; its host has ended what it had started.
    LaunchFailed {
        /// Why, in words.
        why: String,
        /// The exit code shells give for that.
        code: u8,
    },
    /// What a rank asks of its job.
    Request {
        /// The rank.
        rank: u32,
        /// The request.
        request: Request,
    },
    /// A rank's process is gone.
    Ended {
        /// The rank.
        rank: u32,
        /// How.
        how: How,
    },
    /// Bytes a rank wrote.
    Output {
        /// The rank.
        rank: u32,
        /// To where.
        stream: Stream,
        /// What.
        data: Vec<u8>,
    },
    /// A rank's output has ended (both streams).
    OutputEnd {
        /// The rank.
        rank: u32,
    },
    /// Rank 0 has taken the input given to it; more may come.
    StdinTaken,
    /// Rank 0 reads no more input.
    StdinClosed,
    /// Answers [`Down::Ping`].
    Alive,
    /// After [`Down::Finish`]: everything is ended, reaped and forwarded.
    Drained,
    /// Answers [`Down::Look`].
    Looked {
        /// Who asked.
        by: u32,
        /// The number of its question.
        number: u32,
        /// Whether the process is kept from its core.
        starved: bool,
    },
}

/// From the head to a host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Down {
    /// Start these ranks. Once, first.
    Launch(Box<LaunchSpec>),
    /// Answers a rank's `get`.
    GetReply {
        /// The rank.
        rank: u32,
        /// The value, if the key is there.
        value: Option<String>,
    },
    /// Lets every rank out of the barrier.
    BarrierOut,
    /// A rank of the job failed: publish it.
    Failed(FailedRank),
    /// Input for rank 0.
    Stdin(Vec<u8>),
    /// No more input for rank 0.
    StdinEnd,
    /// So many bytes of output have been taken.
    OutputTaken(usize),
    /// Nobody reads this output any more: close the ranks' ends, so that they see it as they would
    /// without a launcher.
    OutputClosed(Stream),
    /// Pass this signal to every rank.
    Signal(i32),
    /// End every rank: politely, then not.
    Terminate,
    /// End every rank now.
    Kill,
    /// End this rank now: it was declared failed, and may be stopped or hung.
    Fence {
        /// The rank.
        rank: u32,
    },
    /// Every rank of the job has ended: end what they left running, forward the rest of the output.
    Finish,
    /// Answer with [`Up::Alive`].
    Ping,
    /// The job is over: a daemon exits.
    Shutdown,
    /// Answer with [`Up::Looked`].
    Look {
        /// The rank that asks.
        by: u32,
        /// Tells its questions apart.
        number: u32,
        /// The process it asks about.
        process: Incarnation,
    },
}
