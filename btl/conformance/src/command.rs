//! What a stage tells its processes to do, as lines of text: they may be in other processes.

use ironweave_btl::{Address, Atomic, RemoteKey, Residue};
use std::fmt::Write;

/// Which tiers a flood uses, as bits.
pub(crate) mod tier {
    pub(crate) const SHORT: u8 = 1;
    pub(crate) const BCOPY: u8 = 2;
    pub(crate) const ZCOPY: u8 = 4;
    pub(crate) const ALL: u8 = 7;
}

/// Frames to send, one after the other, as room allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Flood {
    pub to: u32,
    pub frames: u64,
    /// Longest payload in bytes; each frame's is random below it, and cut to the limit of its tier.
    pub longest: usize,
    pub tiers: u8,
    /// Kills its own process in the middle of packing this frame, counted from this flood's first.
    pub die_at: Option<u64>,
}

/// Atomic operations on a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    pub at: u32,
    pub key: RemoteKey,
    pub offset: u64,
    pub what: Atomic,
    pub times: u64,
}

/// See [`crate::node::Node`] for what each does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    Connect(u32, Address),
    Flood(Flood),
    /// Every size: zero, one, each power of two and its neighbours up to this, over this tier, cut to its limit.
    Sweep(u32, usize, u8),
    /// Calls nothing of the transport until thawed.
    Freeze(bool),
    Invalidate(u32, Residue),
    Exclude(u32, Residue),
    /// Finishes sending, says good-bye, drops the transport.
    Depart,
    /// Drops the transport without a word.
    Drop,
    /// That peer may be found dead.
    MayDie(u32),
    /// Registers this many patterned bytes for process 0 to `get` (true) or blank ones for it to `put`.
    Register(bool, usize),
    /// Ends the registration; a target is checked against the pattern of this key.
    Deregister(Option<u64>),
    /// Changes a number in memory that a peer registered, so many times, as room allows.
    Change(Change),
    /// What was there before each change that is over, of those since this was asked last, as text.
    Fetched,
    /// Plays the broken peer of the process at that address.
    Inject(Address, u64),
    /// How often, of a thousand, landings get a region.
    Direct(u32),
    Status,
    /// As `Status`, after a look at every buffer that ever came back.
    Inspect,
    Dump,
    Address,
}

/// What a process says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Status {
    pub frames_received: u64,
    pub frames_sent: u64,
    pub bytes_received: u64,
    pub outstanding: u64,
    /// Frames of its floods that are still to be sent.
    pub to_send: u64,
    pub open: u64,
    pub up: u64,
    pub closed: u64,
    pub faults: u64,
    /// It departed, dropped its transport, or was told to die.
    pub gone: bool,
    pub violations: Vec<String>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::from("x"), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

fn unhex(word: &str) -> Option<Vec<u8>> {
    let digits = word.strip_prefix('x')?.as_bytes();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

fn address_words(address: &Address) -> String {
    format!("{} {} {}", hex(address.component.as_bytes()), address.rail, hex(&address.bytes))
}

struct Words<'a>(std::str::SplitWhitespace<'a>);

impl Words<'_> {
    fn number<T: std::str::FromStr>(&mut self) -> Option<T> {
        self.0.next()?.parse().ok()
    }

    fn flag(&mut self) -> Option<bool> {
        Some(self.number::<u8>()? != 0)
    }

    fn residue(&mut self) -> Option<Residue> {
        Some(if self.flag()? { Residue::Deliver } else { Residue::Discard })
    }

    fn option(&mut self) -> Option<Option<u64>> {
        match self.0.next()? {
            "-" => Some(None),
            number => Some(Some(number.parse().ok()?)),
        }
    }

    fn address(&mut self) -> Option<Address> {
        Some(Address {
            component: String::from_utf8(unhex(self.0.next()?)?).ok()?,
            rail: self.number()?,
            bytes: unhex(self.0.next()?)?,
        })
    }
}

fn option_word(value: Option<u64>) -> String {
    value.map_or(String::from("-"), |value| value.to_string())
}

fn residue_word(residue: Residue) -> u8 {
    u8::from(residue == Residue::Deliver)
}

impl Command {
    pub(crate) fn encode(&self) -> String {
        match self {
            Command::Connect(peer, address) => {
                format!("connect {peer} {}", address_words(address))
            }
            Command::Flood(flood) => format!(
                "flood {} {} {} {} {}",
                flood.to,
                flood.frames,
                flood.longest,
                flood.tiers,
                option_word(flood.die_at)
            ),
            Command::Sweep(to, longest, tier) => format!("sweep {to} {longest} {tier}"),
            Command::Freeze(freeze) => format!("freeze {}", u8::from(*freeze)),
            Command::Invalidate(peer, residue) => {
                format!("invalidate {peer} {}", residue_word(*residue))
            }
            Command::Exclude(peer, residue) => format!("exclude {peer} {}", residue_word(*residue)),
            Command::Depart => String::from("depart"),
            Command::Drop => String::from("drop"),
            Command::MayDie(peer) => format!("may-die {peer}"),
            Command::Register(source, len) => format!("register {} {len}", u8::from(*source)),
            Command::Deregister(key) => format!("deregister {}", option_word(*key)),
            Command::Change(Change { at, key, offset, what, times }) => {
                let (compare, operand) = match *what {
                    Atomic::FetchAdd(add) => (None, add),
                    Atomic::CompareSwap { compare, swap } => (Some(compare), swap),
                };
                let (key, compare) = (hex(key.as_bytes()), option_word(compare));
                format!("change {at} {key} {offset} {compare} {operand} {times}")
            }
            Command::Fetched => String::from("fetched"),
            Command::Inject(address, round) => format!("inject {} {round}", address_words(address)),
            Command::Direct(often) => format!("direct {often}"),
            Command::Status => String::from("status"),
            Command::Inspect => String::from("inspect"),
            Command::Dump => String::from("dump"),
            Command::Address => String::from("address"),
        }
    }

    pub(crate) fn decode(line: &str) -> Option<Command> {
        let mut words = Words(line.split_whitespace());
        Some(match words.0.next()? {
            "connect" => Command::Connect(words.number()?, words.address()?),
            "flood" => Command::Flood(Flood {
                to: words.number()?,
                frames: words.number()?,
                longest: words.number()?,
                tiers: words.number()?,
                die_at: words.option()?,
            }),
            "sweep" => Command::Sweep(words.number()?, words.number()?, words.number()?),
            "freeze" => Command::Freeze(words.flag()?),
            "invalidate" => Command::Invalidate(words.number()?, words.residue()?),
            "exclude" => Command::Exclude(words.number()?, words.residue()?),
            "depart" => Command::Depart,
            "drop" => Command::Drop,
            "may-die" => Command::MayDie(words.number()?),
            "register" => Command::Register(words.flag()?, words.number()?),
            "deregister" => Command::Deregister(words.option()?),
            "change" => Command::Change(Change {
                at: words.number()?,
                key: RemoteKey::new(&unhex(words.0.next()?)?)?,
                offset: words.number()?,
                what: match words.option()? {
                    None => Atomic::FetchAdd(words.number()?),
                    Some(compare) => Atomic::CompareSwap { compare, swap: words.number()? },
                },
                times: words.number()?,
            }),
            "fetched" => Command::Fetched,
            "inject" => Command::Inject(words.address()?, words.number()?),
            "direct" => Command::Direct(words.number()?),
            "status" => Command::Status,
            "inspect" => Command::Inspect,
            "dump" => Command::Dump,
            "address" => Command::Address,
            _ => return None,
        })
    }
}

/// An answer, also one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Done,
    Refused(String),
    Address(Address),
    Key(Vec<u8>),
    Status(Status),
    Text(String),
}

impl Answer {
    pub(crate) fn encode(&self) -> String {
        match self {
            Answer::Done => String::from("done"),
            Answer::Refused(why) => format!("refused {}", hex(why.as_bytes())),
            Answer::Address(address) => format!("address {}", address_words(address)),
            Answer::Key(bytes) => format!("key {}", hex(bytes)),
            Answer::Text(text) => format!("text {}", hex(text.as_bytes())),
            Answer::Status(status) => format!(
                "status {} {} {} {} {} {} {} {} {} {} {}",
                status.frames_received,
                status.frames_sent,
                status.bytes_received,
                status.outstanding,
                status.to_send,
                status.open,
                status.up,
                status.closed,
                status.faults,
                u8::from(status.gone),
                hex(status.violations.join("\n").as_bytes())
            ),
        }
    }

    pub(crate) fn decode(line: &str) -> Option<Answer> {
        let mut words = Words(line.split_whitespace());
        let text = |word: Option<&str>| String::from_utf8(unhex(word?)?).ok();
        Some(match words.0.next()? {
            "done" => Answer::Done,
            "refused" => Answer::Refused(text(words.0.next())?),
            "address" => Answer::Address(words.address()?),
            "key" => Answer::Key(unhex(words.0.next()?)?),
            "text" => Answer::Text(text(words.0.next())?),
            "status" => Answer::Status(Status {
                frames_received: words.number()?,
                frames_sent: words.number()?,
                bytes_received: words.number()?,
                outstanding: words.number()?,
                to_send: words.number()?,
                open: words.number()?,
                up: words.number()?,
                closed: words.number()?,
                faults: words.number()?,
                gone: words.flag()?,
                violations: text(words.0.next())?.lines().map(str::to_owned).collect(),
            }),
            _ => return None,
        })
    }
}
