//! The PMI-1 server's side of one connection: a pure machine between a rank's bytes and the job.
//!
//! Answers by itself what needs no knowledge of the job, and hands up the rest as [`Request`]s.
//! Never blocks, never trusts: a line that is no command is logged and dropped, a request that
//! makes no sense is refused. At most one `get` and one barrier are outstanding, as the protocol is
//! strictly request and reply.

use crate::pmi::wire::{self, Command, Lines};
use serde::{Deserialize, Serialize};

/// Limits told to clients: those of Hydra, which every PMI-1 client was built against.
const KVSNAME_MAX: usize = 256;
const KEYLEN_MAX: usize = 64;
const VALLEN_MAX: usize = 1024;

/// What a rank asks of its job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// It initialised PMI: from now on its end without `Finalized` is a failure.
    Joined,
    /// It publishes `value` under `key`.
    Put {
        /// The key.
        key: String,
        /// The value, text.
        value: String,
    },
    /// It wants the value under `key`; answer with [`Server::answer_get`].
    Get {
        /// The key.
        key: String,
    },
    /// It entered the barrier; answer with [`Server::release`].
    Barrier,
    /// It finalized.
    Finalized,
    /// It wants the job to end with `code`, or these ranks only; it ends by itself.
    Abort {
        /// The exit code asked for.
        code: i32,
        /// Whom; nobody named: everybody.
        ranks: Option<Vec<u32>>,
    },
}

/// What the client is waiting for from the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Nothing,
    Get,
    Barrier,
}

/// One rank's connection.
#[derive(Debug)]
pub struct Server {
    rank: u32,
    size: u32,
    app: usize,
    kvs: String,
    lines: Lines,
    out: Vec<u8>,
    waiting: Waiting,
    in_block: bool,
    broken: bool,
}

impl Server {
    /// The machine for `rank` of `size`, which runs the job's program number `app`, in the job whose
    /// key-value space is called `kvs`.
    pub fn new(rank: u32, size: u32, app: usize, kvs: &str) -> Server {
        Server {
            rank,
            size,
            app,
            kvs: kvs.to_owned(),
            lines: Lines::default(),
            out: Vec::new(),
            waiting: Waiting::Nothing,
            in_block: false,
            broken: false,
        }
    }

    /// Takes bytes from the rank; appends what it asks of the job to `requests`.
    pub fn feed(&mut self, bytes: &[u8], requests: &mut Vec<Request>) {
        if self.broken {
            return;
        }
        self.lines.push(bytes);
        loop {
            match self.lines.next_line() {
                Ok(None) => return,
                Ok(Some(line)) => {
                    // The line borrows the cutter: own it before the machine moves.
                    let line = line.to_vec();
                    self.line(&line, requests);
                }
                Err(error) => {
                    tracing::warn!(rank = self.rank, %error, "PMI stream given up");
                    self.broken = true;
                    return;
                }
            }
        }
    }

    /// Answers the outstanding `get`.
    pub fn answer_get(&mut self, value: Option<&str>) {
        if std::mem::replace(&mut self.waiting, Waiting::Nothing) != Waiting::Get {
            return;
        }
        match value {
            Some(value) => self.say(&format!("cmd=get_result rc=0 msg=success value={value}")),
            None => self.say("cmd=get_result rc=-1 msg=key_not_found value=unknown"),
        }
    }

    /// Lets the rank out of the barrier, if it is in.
    pub fn release(&mut self) {
        if self.waiting == Waiting::Barrier {
            self.waiting = Waiting::Nothing;
            self.say("cmd=barrier_out rc=0");
        }
    }

    /// Whether there are bytes to send to the rank.
    pub fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    /// The bytes to send to the rank.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    fn say(&mut self, line: &str) {
        self.out.extend_from_slice(line.as_bytes());
        self.out.push(b'\n');
    }

    fn line(&mut self, line: &[u8], requests: &mut Vec<Request>) {
        if self.in_block {
            if line.trim_ascii() == b"endcmd" {
                self.in_block = false;
                self.say("cmd=spawn_result rc=-1 msg=spawn_not_supported");
            }
            return;
        }
        match wire::parse(line) {
            Ok(command) if command.opens_block() => self.in_block = true,
            Ok(command) => self.command(&command, requests),
            Err(error) => tracing::warn!(rank = self.rank, %error, "PMI line dropped"),
        }
    }

    fn command(&mut self, command: &Command<'_>, requests: &mut Vec<Request>) {
        match command.name() {
            "init" => {
                let supported = command.get("pmi_version") == Some("1");
                let rc = if supported { 0 } else { -1 };
                self.say(&format!(
                    "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc={rc}"
                ));
                if supported {
                    requests.push(Request::Joined);
                }
            }
            "get_maxes" => self.say(&format!(
                "cmd=maxes kvsname_max={KVSNAME_MAX} keylen_max={KEYLEN_MAX} vallen_max={VALLEN_MAX}"
            )),
            "get_appnum" => self.say(&format!("cmd=appnum appnum={}", self.app)),
            "get_my_kvsname" => self.say(&format!("cmd=my_kvsname kvsname={}", self.kvs)),
            "get_universe_size" => self.say(&format!("cmd=universe_size size={}", self.size)),
            "put" => match (command.get("key"), command.get("value")) {
                (Some(key), Some(value))
                    if !key.is_empty() && key.len() < KEYLEN_MAX && value.len() < VALLEN_MAX =>
                {
                    self.say("cmd=put_result rc=0 msg=success");
                    requests.push(Request::Put { key: key.into(), value: value.into() });
                }
                _ => self.say("cmd=put_result rc=-1 msg=key_or_value_missing_or_too_long"),
            },
            "get" => match command.get("key") {
                Some(key) if self.waiting == Waiting::Nothing => {
                    self.waiting = Waiting::Get;
                    requests.push(Request::Get { key: key.into() });
                }
                _ => self.say("cmd=get_result rc=-1 msg=no_key value=unknown"),
            },
            "barrier_in" if self.waiting == Waiting::Nothing => {
                self.waiting = Waiting::Barrier;
                requests.push(Request::Barrier);
            }
            "finalize" => {
                self.say("cmd=finalize_ack rc=0");
                requests.push(Request::Finalized);
            }
            "abort" => {
                let code = command.number("exitcode").unwrap_or(1);
                let ranks = command.get("ranks").map(|ranks| wire::read_ranks(ranks, self.size));
                match ranks {
                    None => requests.push(Request::Abort { code, ranks: None }),
                    Some(Some(ranks)) => requests.push(Request::Abort { code, ranks: Some(ranks) }),
                    Some(None) => tracing::warn!(rank = self.rank, "abort of no such ranks dropped"),
                }
            }
            "publish_name" => self.say("cmd=publish_result rc=-1 msg=not_supported"),
            "unpublish_name" => self.say("cmd=unpublish_result rc=-1 msg=not_supported"),
            "lookup_name" => self.say("cmd=lookup_result rc=-1 msg=not_supported"),
            name => tracing::warn!(rank = self.rank, command = name, "unknown PMI command dropped"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn server() -> Server {
        Server::new(1, 4, 0, "job")
    }

    fn said(server: &mut Server) -> String {
        String::from_utf8(std::mem::take(server.output())).unwrap()
    }

    #[test]
    fn a_session_from_init_to_finalize() {
        let mut server = server();
        let mut requests = Vec::new();
        server.feed(b"cmd=init pmi_version=1 pmi_subv", &mut requests);
        assert!(requests.is_empty());
        server.feed(b"ersion=1\ncmd=get_maxes\n", &mut requests);
        assert_eq!(requests, [Request::Joined]);
        assert_eq!(
            said(&mut server),
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n\
             cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n"
        );
        requests.clear();
        server.feed(b"cmd=put kvsname=job key=a value=b\ncmd=barrier_in\n", &mut requests);
        let put = Request::Put { key: "a".into(), value: "b".into() };
        assert_eq!(requests, [put, Request::Barrier]);
        assert_eq!(said(&mut server), "cmd=put_result rc=0 msg=success\n");
        server.release();
        server.release();
        assert_eq!(said(&mut server), "cmd=barrier_out rc=0\n");
        requests.clear();
        server.feed(b"cmd=get kvsname=job key=a\n", &mut requests);
        assert_eq!(requests, [Request::Get { key: "a".into() }]);
        server.answer_get(Some("b"));
        server.answer_get(None);
        assert_eq!(said(&mut server), "cmd=get_result rc=0 msg=success value=b\n");
        requests.clear();
        server.feed(b"cmd=finalize\n", &mut requests);
        assert_eq!(requests, [Request::Finalized]);
        assert_eq!(said(&mut server), "cmd=finalize_ack rc=0\n");
    }

    #[test]
    fn spawn_is_refused_as_a_whole_block() {
        let mut server = server();
        let mut requests = Vec::new();
        server.feed(b"mcmd=spawn\nnprocs=2\ncmd=abort\nendcmd\n", &mut requests);
        assert!(requests.is_empty());
        assert_eq!(said(&mut server), "cmd=spawn_result rc=-1 msg=spawn_not_supported\n");
    }

    #[test]
    fn abort_carries_its_code_and_ranks_that_there_are() {
        let mut requests = Vec::new();
        server().feed(b"cmd=abort exitcode=-3\n", &mut requests);
        server().feed(b"cmd=abort exitcode=4 ranks=0,2-3\n", &mut requests);
        server().feed(b"cmd=abort exitcode=4 ranks=2-4\n", &mut requests);
        let some = Request::Abort { code: 4, ranks: Some(vec![0, 2, 3]) };
        assert_eq!(requests, [Request::Abort { code: -3, ranks: None }, some]);
    }

    #[test]
    fn another_protocol_version_is_refused() {
        let mut server = server();
        let mut requests = Vec::new();
        server.feed(b"cmd=init pmi_version=2 pmi_subversion=0\n", &mut requests);
        assert!(requests.is_empty());
        assert!(said(&mut server).contains("rc=-1"));
    }

    proptest! {
        #[test]
        fn garbage_makes_no_request(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut server = server();
            let mut requests = Vec::new();
            server.feed(&bytes, &mut requests);
            let has_command = bytes.windows(4).any(|window| window == b"cmd=");
            prop_assert!(has_command || requests.is_empty());
        }
    }
}
