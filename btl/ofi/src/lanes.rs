//! Lanes: endpoints for one peer alone each, which reads go over, because closing one is the only way to have a provider let go
//! of memory while it serves other peers (law 2): of the reader's, which a read is landing in, and of the source, which software
//! takes its answer out of.
//!
//! Two lanes make a pair, one at each side, with one connection between them that reads both ways share: over a TCP connection with
//! data one way alone, the end of a message waits for a delayed acknowledgement, is sent again by a timer, and the next message
//! is slowed down for it (with BBR by half, at 1 MiB). A pair begins and ends as a whole, and no number is used twice.
//!
//! ```text
//!  the process of the lower rank                    the other
//!     │ LANE number, address                            │   who first lends memory opens a lane and tells;
//!     │◀───────────────────────────────────────────────▶│   the other does the same
//!     │ a read of some bytes that mean nothing          │   nobody but this one connects
//!     ├────────────────────────────────────────────────▶│
//!     │ JOINED, when they are there                     │
//!     │◀───────────────────────────────────────────────▶│   and back: now both read what the other has lent
//!     │ LANE number, nowhere, next frame                │
//!     │◀───────────────────────────────────────────────▶│   closed: all that was lent over the pair is void
//! ```
//!
//! The order matters because libfabric crashes where an endpoint is closed while somebody connects to it (1.22 keeps the
//! accepted socket, which points to the endpoint). Nobody ever connects to the lane of the lower rank; the other's, while it is not
//! joined, is left open when it should be closed: nothing was read of it yet, and none of our reads went over it.

use crate::endpoint::index_of;
use crate::lend;
use crate::news::News;
use ironweave_btl::memory::OwnedBuffer;
use ironweave_ffi::ofi::{FiAddr, Lane, Port, Registration, Remote};

/// Peers with a lane at once: each is an endpoint, which some providers give megabytes of buffers.
const LANES: usize = 16;
/// The mark of a probe: this, and the number of its lane.
const PROBE: u64 = 1 << 63;
/// Bytes that a probe reads.
const PROBED: usize = 8;

/// Ours for one life.
struct Ours {
    number: u32,
    lane: Lane,
    name: Vec<u8>,
    /// It takes messages (`leads`).
    takes: bool,
    /// Registrations that are lent over it.
    lent: u32,
}

/// What the peer has told of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Theirs {
    Untold,
    At(u32, FiAddr, Registration, bool),
    /// This one is closed, and so are all before it.
    Gone(u32),
    /// It can have none.
    Never,
}

impl Theirs {
    fn addr(self) -> Option<FiAddr> {
        if let Theirs::At(_, addr, ..) = self { Some(addr) } else { None }
    }
}

/// How far a pair is. Only [`Join::Open`] carries reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Join {
    Apart,
    /// Our probe is under way.
    Probing,
    /// The peer is told that it is back.
    Said,
    Open,
}

struct OfLife {
    life: u64,
    ours: Option<Ours>,
    theirs: Theirs,
    /// The address of the peer's.
    there: Vec<u8>,
    join: Join,
}

/// Where a read is to go.
pub(crate) enum Way {
    /// To this address.
    To(FiAddr),
    /// Not yet.
    Wait,
    /// That lane is gone.
    Void,
}

/// All lanes of one rail.
pub(crate) struct Lanes {
    me: u32,
    lives: Vec<OfLife>,
    /// Lanes that could not be closed safely, and where they are: for others to come.
    stranded: Vec<Ours>,
    /// The provider has none, or would not open one.
    none: bool,
    numbers: u32,
    /// The bytes that peers' probes read, once they are registered, and those that ours are read into.
    beacon: Option<Registration>,
    landing: OwnedBuffer,
    /// What peers are to be told, by life.
    pub untold: Vec<(u64, News)>,
    /// Lives whose pair waits for a probe.
    apart: Vec<u64>,
    /// Addresses of peers' lanes that are gone: nothing goes there any more.
    pub left: Vec<FiAddr>,
}

impl Lanes {
    /// No lanes; `possible`: there may be some.
    pub(crate) fn new(me: u32, possible: bool) -> Self {
        Lanes {
            me,
            lives: Vec::new(),
            stranded: Vec::new(),
            none: !possible,
            numbers: 0,
            beacon: None,
            landing: OwnedBuffer::zeroed(PROBED),
            untold: Vec::new(),
            apart: Vec::new(),
            left: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.lives.iter().filter(|of| of.ours.is_some()).count()
    }

    /// How many can carry reads.
    pub(crate) fn joined(&self) -> usize {
        self.lives.iter().filter(|of| of.join == Join::Open).count()
    }

    pub(crate) fn stranded(&self) -> usize {
        self.stranded.len()
    }

    /// Nothing is to be told or tried.
    pub(crate) fn is_idle(&self) -> bool {
        self.untold.is_empty() && self.apart.is_empty()
    }

    /// The lives with a lane of ours.
    pub(crate) fn lives(&self) -> Vec<u64> {
        self.lives.iter().filter(|of| of.ours.is_some()).map(|of| of.life).collect()
    }

    /// Whether a lane may still write memory of that life's reads, or read what was lent to it.
    pub(crate) fn has(&self, life: u64) -> bool {
        self.lives.iter().any(|of| of.life == life && of.ours.is_some())
    }

    /// The life that has lane `number` of ours now.
    pub(crate) fn life_of(&self, number: u32) -> Option<u64> {
        let it = |of: &&OfLife| of.ours.as_ref().is_some_and(|ours| ours.number == number);
        self.lives.iter().find(it).map(|of| of.life)
    }

    /// Memory is lent over lane `number` of ours, or not any more.
    pub(crate) fn count_lent(&mut self, number: u32, more: bool) {
        let mut ours = self.lives.iter_mut().filter_map(|of| of.ours.as_mut());
        if let Some(ours) = ours.find(|ours| ours.number == number) {
            ours.lent = if more { ours.lent + 1 } else { ours.lent.saturating_sub(1) };
        }
    }

    /// Whether the peer of a life has something to read of ours.
    pub(crate) fn lends(&self, life: u64) -> bool {
        let of = self.lives.iter().find(|of| of.life == life);
        of.and_then(|of| of.ours.as_ref()).is_some_and(|ours| ours.lent > 0)
    }

    /// Whether nobody connects to our lane for that life, because we do.
    fn begins(&self, life: u64) -> bool {
        (self.me as usize) < index_of(life)
    }

    fn of_life(&mut self, life: u64) -> &mut OfLife {
        let at = self.lives.iter().position(|of| of.life == life).unwrap_or_else(|| {
            let (theirs, there, join) = (Theirs::Untold, Vec::new(), Join::Apart);
            self.lives.push(OfLife { life, ours: None, theirs, there, join });
            self.lives.len() - 1
        });
        &mut self.lives[at]
    }

    /// The number of the lane over which a life's peer may read, opened and told at first use; `None` when there can be none.
    pub(crate) fn offer(&mut self, port: &mut Port, life: u64) -> Option<u32> {
        let of = self.of_life(life);
        if of.theirs == Theirs::Never {
            return None;
        }
        if let Some(ours) = &of.ours {
            return Some(ours.number);
        }
        let opened = self.open(port);
        if let (Some(Ours { number, name, takes, .. }), Some(beacon)) = (&opened, self.beacon) {
            let answers = match self.of_life(life).theirs {
                Theirs::At(theirs, ..) => theirs,
                Theirs::Untold | Theirs::Gone(_) | Theirs::Never => 0,
            };
            let (number, name, takes) = (*number, name.clone(), *takes);
            self.untold.push((life, News::Here { number, answers, takes, beacon, name }));
        }
        let number = opened.as_ref().map(|ours| ours.number);
        self.of_life(life).ours = opened;
        number
    }

    fn open(&mut self, port: &mut Port) -> Option<Ours> {
        if let Some(kept) = self.stranded.pop() {
            self.numbers += 1;
            return Some(Ours { number: self.numbers, lent: 0, ..kept });
        }
        if self.none || self.len() >= LANES {
            return None;
        }
        if self.beacon.is_none() {
            self.beacon = lend::register_static(port, &[0; PROBED]).ok();
        }
        match (port.open_lane(), self.beacon) {
            (Ok((lane, name)), Some(_)) => {
                self.numbers += 1;
                let takes = port.takes_messages(&lane);
                Some(Ours { number: self.numbers, lane, name, takes, lent: 0 })
            }
            (opened, _) => {
                tracing::debug!(error = ?opened.err(), "no lanes for ofi reads");
                self.none = true;
                None
            }
        }
    }

    /// Our lane for a life, and where a read goes that the peer lets in by its lane `number`.
    pub(crate) fn way(&self, life: u64, number: u32) -> (Option<&Lane>, Way) {
        let Some(of) = self.lives.iter().find(|of| of.life == life) else {
            return (None, Way::Wait);
        };
        let way = match of.theirs {
            Theirs::At(now, there, ..) if now == number && of.join == Join::Open => Way::To(there),
            Theirs::At(now, ..) if is_later(now, number) => Way::Void,
            Theirs::Gone(now) if !is_later(number, now) => Way::Void,
            Theirs::Never => Way::Void,
            _ => Way::Wait,
        };
        (of.ours.as_ref().map(|ours| &ours.lane), way)
    }

    /// Our lane for a life and the peer's, if messages may go over them.
    #[inline]
    pub(crate) fn outward(&self, life: u64) -> Option<(&Lane, FiAddr)> {
        let of = self.lives.iter().find(|of| of.life == life)?;
        match (&of.ours, of.theirs, of.join) {
            (Some(ours), Theirs::At(_, there, _, true), Join::Open) if ours.takes => {
                Some((&ours.lane, there))
            }
            _ => None,
        }
    }

    /// Our lane for a life, if messages may come over it. The peer may know before we do that the pair is joined.
    #[inline]
    pub(crate) fn inward(&self, life: u64) -> Option<&Lane> {
        let of = self.lives.iter().find(|of| of.life == life)?;
        let joined = matches!(of.join, Join::Said | Join::Open);
        of.ours.as_ref().filter(|ours| ours.takes && joined).map(|ours| &ours.lane)
    }

    /// Whether the peer's lane `number` is the one of the pair with ours.
    pub(crate) fn is_paired(&self, life: u64, number: u32) -> bool {
        let of = self.lives.iter().find(|of| of.life == life);
        of.is_some_and(|of| matches!(of.theirs, Theirs::At(now, ..) if now == number))
    }

    /// Nothing came of a pair in time, or nothing will: there is to be no other.
    pub(crate) fn give_up(&mut self, life: u64) {
        let old = std::mem::replace(&mut self.of_life(life).theirs, Theirs::Never);
        self.left.extend(old.addr());
        self.untold.push((life, News::Never));
    }

    /// The peer of that life tells of a lane, or of a join. What is said twice, or late, changes nothing. News of an end are for
    /// [`Lanes::close`] first.
    pub(crate) fn heard(&mut self, port: &mut Port, life: u64, news: &News) {
        let begins = self.begins(life);
        let of = self.of_life(life);
        let last = match of.theirs {
            Theirs::At(number, ..) | Theirs::Gone(number) => number,
            Theirs::Untold | Theirs::Never => 0,
        };
        match *news {
            News::Never => {
                let old = std::mem::replace(&mut of.theirs, Theirs::Never);
                self.left.extend(old.addr());
            }
            News::Gone { number, .. } => {
                if number == last || is_later(number, last) {
                    let old = std::mem::replace(&mut of.theirs, Theirs::Gone(number));
                    self.left.extend(old.addr());
                }
            }
            News::Here { number, answers, takes, beacon, ref name } => {
                if last != 0 && !is_later(number, last) {
                    return;
                }
                let ours = of.ours.as_ref().map(|ours| ours.number);
                let theirs = match port.insert(name) {
                    // It answers a lane that is closed meanwhile: it will hear of that.
                    _ if answers != 0 && ours != Some(answers) => Theirs::Gone(number),
                    Ok(there) => Theirs::At(number, there, beacon, takes),
                    Err(error) => {
                        tracing::debug!(%error, "a peer's lane cannot be reached");
                        Theirs::Gone(number)
                    }
                };
                let old = std::mem::replace(&mut of.theirs, theirs);
                of.there = name.clone();
                self.left.extend(old.addr());
                if matches!(theirs, Theirs::Gone(_)) {
                    return;
                }
                if self.offer(port, life).is_none() {
                    self.untold.push((life, News::Never));
                } else if begins {
                    self.apart.push(life);
                }
            }
            News::Joined { yours, mine } => {
                let Some(ours) = of.ours.as_ref().filter(|ours| ours.number == yours) else {
                    return;
                };
                if !matches!(of.theirs, Theirs::At(number, ..) if number == mine) {
                    return;
                }
                let tell = match of.join {
                    Join::Apart if !begins => true,
                    Join::Said => false,
                    Join::Apart | Join::Probing | Join::Open => return,
                };
                unpace(port, &ours.name, &of.there);
                of.join = Join::Open;
                if tell {
                    self.untold.push((life, News::Joined { yours: mine, mine: yours }));
                }
            }
        }
    }

    /// Connects pairs that are not yet.
    pub(crate) fn probe(&mut self, port: &mut Port) {
        let landing = &self.landing;
        let lives = &mut self.lives;
        self.apart.retain(|life| {
            let Some(of) = lives.iter_mut().find(|of| of.life == *life) else { return false };
            let (Some(ours), Theirs::At(_, there, beacon, _), Join::Apart) =
                (&of.ours, of.theirs, of.join)
            else {
                return false;
            };
            let remote = Remote { key: beacon.key, address: beacon.base };
            let mark = PROBE | u64::from(ours.number);
            match lend::probe(port, &ours.lane, landing, there, remote, mark) {
                Ok(()) => of.join = Join::Probing,
                Err(error) => tracing::trace!(%error, "a lane is being connected"),
            }
            of.join == Join::Apart // again, until the connection is there; the reads that wait have their own clock
        });
    }

    /// A read that is marked as a probe is back. Gives the life whose pair is over for good, if it failed.
    pub(crate) fn probed(&mut self, mark: u64, well: bool) -> Option<u64> {
        let life = self.life_of((mark & !PROBE) as u32)?;
        let of = self.of_life(life);
        let (Some(ours), Theirs::At(number, ..), Join::Probing) = (&of.ours, of.theirs, of.join)
        else {
            return None;
        };
        if !well {
            return Some(life);
        }
        let news = News::Joined { yours: number, mine: ours.number };
        of.join = Join::Said;
        self.untold.push((life, news));
        None
    }

    /// Ends a pair, and tells the peer; `false` when the provider does not let go of memory yet.
    pub(crate) fn close(&mut self, port: &mut Port, life: u64) -> bool {
        let begins = self.begins(life);
        let Some(of) = self.lives.iter_mut().find(|of| of.life == life) else { return true };
        let Some(ours) = of.ours.take() else { return true };
        let number = ours.number;
        if !begins && of.join != Join::Open {
            self.stranded.push(ours);
        } else if let Err(lane) = port.close_lane(ours.lane) {
            of.ours = Some(Ours { lane, ..ours });
            return false;
        }
        if let Theirs::At(number, there, ..) = of.theirs {
            self.left.push(there);
            of.theirs = Theirs::Gone(number);
        }
        of.join = Join::Apart;
        // Who was not told of it yet need not be told that it is gone.
        let untold = self.untold.len();
        self.untold.retain(|(of, news)| *of != life || !matches!(news, News::Here { .. }));
        if self.untold.len() == untold {
            self.untold.push((life, News::Gone { number, next: 0 })); // `next` when it is told
        }
        true
    }

    /// A life is over, and its lane closed.
    pub(crate) fn forget(&mut self, life: u64) {
        self.untold.retain(|(of, _)| *of != life);
        for of in self.lives.extract_if(.., |of| of.life == life && of.ours.is_none()) {
            self.left.extend(of.theirs.addr());
        }
    }
}

/// Ends the pacing of the connection between the endpoints at `ours` and `theirs`, where both are on this host: BBR takes the sender's
/// pauses for want of bandwidth, and 1 MiB took 300 us instead of 130.
pub(crate) fn unpace(port: &Port, ours: &[u8], theirs: &[u8]) {
    if port.is_near(theirs) {
        let connections = port.unpace(&[ours, theirs]);
        tracing::trace!(connections, "not paced any more");
    }
}

/// Whether that mark is a probe's.
pub(crate) fn is_probe(mark: u64) -> bool {
    mark & PROBE != 0
}

/// Whether lane `number` was opened after `other`.
fn is_later(number: u32, other: u32) -> bool {
    (number.wrapping_sub(other) as i32) > 0
}
