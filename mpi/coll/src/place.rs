//! Where a process stands: its communicator's groups, and which of its members share a host.

use crate::CollError;
use std::sync::Arc;

/// Which processes share a host, the same at each member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hosts {
    /// Members of this process's host, in order of ranks.
    pub mine: Box<[u32]>,
    /// This process's index among them.
    pub me: u32,
    /// The first member of each host, in order of ranks.
    pub leaders: Box<[u32]>,
    /// The index of this process's host among the leaders.
    pub host: u32,
    /// The members of each host are ranks without gaps: reductions may go host by host without changing their order.
    pub in_order: bool,
    /// Host of each rank, as an index of `leaders`.
    pub of: Box<[u32]>,
}

/// A process's place in a communicator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    rank: u32,
    size: u32,
    /// The size of the remote group of an inter-communicator.
    remote: Option<u32>,
    hosts: Option<Arc<Hosts>>,
    /// All are on one host, as far as that is known.
    together: bool,
}

impl Place {
    /// In an intra-communicator.
    #[must_use]
    pub const fn intra(rank: u32, size: u32) -> Self {
        Place { rank, size, remote: None, hosts: None, together: false }
    }

    /// In an inter-communicator: rank and size of the own group, and the size of the remote one. Which group is the *first*
    /// does not matter.
    #[must_use]
    pub const fn inter(rank: u32, size: u32, remote: u32) -> Self {
        Place { rank, size, remote: Some(remote), hosts: None, together: false }
    }

    /// Says which processes share a host: one colour for each rank, equal where the host is; the same list at each
    /// member. Then operations that gain by it use each network link once and memory for the rest.
    ///
    /// # Errors
    /// [`CollError::WrongCount`] when there is not one colour for each rank.
    pub fn with_hosts(mut self, colours: &[u32]) -> Result<Self, CollError> {
        if colours.len() != self.size as usize {
            return Err(CollError::WrongCount { expected: self.size as usize, got: colours.len() });
        }
        (self.hosts, self.together) = (None, false);
        if self.remote.is_some() {
            return Ok(self);
        }
        let mut leaders: Vec<u32> = Vec::new();
        let mut by_colour: std::collections::BTreeMap<u32, u32> = std::collections::BTreeMap::new();
        let of: Box<[u32]> = (0..)
            .zip(colours)
            .map(|(rank, &colour)| {
                *by_colour.entry(colour).or_insert_with(|| {
                    leaders.push(rank);
                    leaders.len() as u32 - 1
                })
            })
            .collect();
        self.together = leaders.len() == 1;
        // On one host, or with one process on each, there is nothing to gain.
        if leaders.len() > 1 && leaders.len() < of.len() {
            let host = of[self.rank as usize];
            let mine: Box<[u32]> =
                (0..self.size).filter(|&rank| of[rank as usize] == host).collect();
            let me = mine.iter().take_while(|&&rank| rank < self.rank).count() as u32;
            let in_order = of.windows(2).all(|pair| pair[0] <= pair[1]);
            let leaders = leaders.into();
            self.hosts = Some(Arc::new(Hosts { mine, me, leaders, host, in_order, of }));
        }
        Ok(self)
    }

    /// The rank in the own group.
    #[must_use]
    pub const fn rank(&self) -> u32 {
        self.rank
    }

    /// The size of the own group.
    #[must_use]
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// The size of the remote group of an inter-communicator.
    #[must_use]
    pub const fn remote(&self) -> Option<u32> {
        self.remote
    }

    pub(crate) fn hosts(&self) -> Option<&Hosts> {
        self.hosts.as_deref()
    }

    /// Whether all members are on one host.
    pub(crate) const fn is_together(&self) -> bool {
        self.together
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_told_apart() {
        let place = Place::intra(3, 6).with_hosts(&[7, 9, 7, 9, 9, 7]).expect("one for each");
        let hosts = place.hosts().expect("two hosts");
        assert_eq!((&hosts.mine[..], hosts.me), (&[1, 3, 4][..], 1));
        assert_eq!((&hosts.leaders[..], hosts.host, hosts.in_order), (&[0, 1][..], 1, false));
        let place = Place::intra(0, 4).with_hosts(&[1, 1, 0, 0]).expect("one for each");
        assert!(place.hosts().expect("two hosts").in_order);
    }

    #[test]
    fn one_host_is_none() {
        let place = Place::intra(0, 3).with_hosts(&[5; 3]).expect("right");
        assert!(place.hosts().is_none() && place.is_together());
        let place = Place::intra(0, 3).with_hosts(&[5, 6, 7]).expect("right");
        assert!(place.hosts().is_none() && !place.is_together());
        assert!(Place::intra(0, 3).with_hosts(&[5]).is_err());
    }
}
