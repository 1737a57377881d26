//! What the members of a communicator tell each other before they make another: a ballot each, known to all.
//!
//! On an inter-communicator a collective brings the remote group's; the own group's come back from the remote group, which
//! sends what it got.

use crate::comm::Communicator;
use crate::exchange::{Exchange, Step};
use crate::{CommHandle, Core, CoreError};
use ironweave_btl::Btl;
use ironweave_coll::{Call, CollError, Root};
use ironweave_ft::Nanos;

/// What one member says.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Ballot {
    pub colour: Option<u32>,
    pub key: i32,
}

/// Bytes of an encoded ballot: colour plus one, or 0, in 64 bits; key in 32.
const LEN: usize = 12;

impl Ballot {
    fn encode(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        let colour = self.colour.map_or(0, |colour| u64::from(colour) + 1);
        bytes[..8].copy_from_slice(&colour.to_le_bytes());
        bytes[8..].copy_from_slice(&self.key.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; LEN]) -> Ballot {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *bytes;
        let colour = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let colour = colour.checked_sub(1).map(|colour| colour as u32);
        Ballot { colour, key: i32::from_le_bytes([i, j, k, l]) }
    }

    fn decode_all(bytes: &[u8]) -> Vec<Ballot> {
        bytes.as_chunks::<LEN>().0.iter().map(Ballot::decode).collect()
    }
}

/// What all said, by rank.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Ballots {
    pub own: Vec<Ballot>,
    pub remote: Vec<Ballot>,
}

/// The exchange of ballots.
pub(crate) struct Gather {
    /// In the order in which all members have them: the last one first.
    waiting: Vec<Part>,
    inter: bool,
    /// Encoded ballots of the remote group, once they are here.
    remote: Vec<u8>,
    ballots: Ballots,
    /// Why it ends in vain, once all messages are over.
    ended: Option<CollError>,
}

struct Part {
    exchange: Exchange,
    role: Role,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Brings everybody's ballots, of the remote group on an inter-communicator.
    All,
    /// Sends the remote group's ballots back to it.
    Return,
    /// Brings the own group's ballots back.
    Own,
}

impl Gather {
    /// Begins it, in the communicator's order of collectives. Without `own` the own group's ballots are not wanted on an
    /// inter-communicator.
    pub fn start(comm: &mut Communicator, ballot: Ballot, own: bool) -> Result<Gather, CoreError> {
        let (size, rank) = (comm.group.len() as usize, comm.rank);
        let there = comm.peers().len() as usize;
        let inter = comm.remote.is_some();
        let first = comm.joined.process(0) == comm.group.process(0);
        let context = &mut comm.collectives;
        let mut start = |role| {
            let bcast = |root, len| Call::Bcast { root, len };
            let root = if rank == 0 { Root::Me } else { Root::Other };
            let (call, send, recv) = match role {
                Role::All => {
                    let all = Call::Allgather { len: LEN, block: LEN, in_place: false };
                    (all, ballot.encode().to_vec(), vec![0; LEN * there])
                }
                Role::Return => (bcast(root, LEN * there), Vec::new(), vec![0; LEN * there]),
                Role::Own => (bcast(Root::Rank(0), LEN * size), Vec::new(), vec![0; LEN * size]),
            };
            let exchange = Exchange::start(context, &call, send, recv)?;
            Ok(Part { exchange, role })
        };
        let roles: &[Role] = match (inter && own, first) {
            (false, _) => &[Role::All],
            (true, true) => &[Role::All, Role::Return, Role::Own],
            (true, false) => &[Role::All, Role::Own, Role::Return],
        };
        let mut waiting: Vec<Part> = roles
            .iter()
            .map(|&role| start(role))
            .collect::<Result<_, CollError>>()
            .map_err(CoreError::Collective)?;
        waiting.reverse();
        let (remote, ballots) = (Vec::new(), Ballots::default());
        Ok(Gather { waiting, inter, remote, ballots, ended: None })
    }

    /// Moves it on; `None` while it is under way.
    pub fn poll<B: Btl>(
        &mut self,
        core: &mut Core<B>,
        comm: CommHandle,
        now: Nanos,
    ) -> Option<Result<Ballots, CoreError>> {
        while self.ended.is_none() {
            let Some(part) = self.waiting.last_mut() else {
                return Some(Ok(std::mem::take(&mut self.ballots)));
            };
            match part.exchange.poll(&mut core.pml) {
                Ok(Step::Pending) => return None,
                Ok(Step::Resolve(peer)) => {
                    core.want(peer);
                    return None;
                }
                Ok(Step::Over) => {}
                Err(error) => {
                    self.ended = Some(error);
                    break;
                }
            }
            let Some(Part { exchange, role }) = self.waiting.pop() else { continue };
            let bytes = exchange.take();
            match role {
                Role::All if self.inter => {
                    self.ballots.remote = Ballot::decode_all(&bytes);
                    self.remote = bytes;
                }
                Role::All | Role::Own => self.ballots.own = Ballot::decode_all(&bytes),
                Role::Return => {}
            }
            if let Some(Part { exchange, role: Role::Return }) = self.waiting.last_mut() {
                exchange.fill(&self.remote);
            }
        }
        // The exchanges behind were not polled, so no message of theirs is under way.
        core.give_up(comm, self.ended.as_ref()?, now).map(Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ballots_survive_the_wire() {
        for colour in [None, Some(0), Some(7), Some(u32::MAX)] {
            for key in [i32::MIN, -1, 0, 5, i32::MAX] {
                let ballot = Ballot { colour, key };
                assert_eq!(Ballot::decode(&ballot.encode()), ballot);
            }
        }
    }
}
