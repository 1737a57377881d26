//! The table of algorithms: which one a call uses, by size, number of processes and hosts, and how that is overridden.
//!
//! Everything a choice looks at is the same at each member, so all choose alike. An override that cannot do the call (an
//! order that it would not keep, a number of processes it is not made for) is passed over by all alike, and the table
//! decides.

use crate::CollError;
use std::fmt;

macro_rules! algorithms {
    ($($(#[$doc:meta])* $collective:ident: $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+ })+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
            pub enum $name {
                $($(#[$variant_doc])* $variant,)+
            }

            impl $name {
                /// All of them.
                pub const ALL: &[$name] = &[$($name::$variant),+];

                /// Its name in parameters.
                #[must_use]
                pub const fn name(self) -> &'static str {
                    match self { $($name::$variant => $text,)+ }
                }
            }

            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(self.name())
                }
            }
        )+

        /// What may be set about collectives; the same at each member of a communicator.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct Config {
            $(
                /// The algorithm to use instead of the table's choice.
                pub $collective: Option<$name>,
            )+
            /// Bytes of a segment where long messages are passed on in segments.
            pub segment: usize,
        }

        impl Default for Config {
            fn default() -> Self {
                Config { $($collective: None,)+ segment: SEGMENT }
            }
        }

        impl Config {
            /// The collectives whose algorithm can be set.
            pub const COLLECTIVES: &[&str] = &[$(stringify!($collective)),+];

            /// Sets the algorithm of a collective by name, as the parameter `coll_<collective>_algorithm` does; `"auto"`
            /// leaves it to the table.
            ///
            /// # Errors
            /// [`CollError::UnknownAlgorithm`], with the names there are.
            pub fn set(&mut self, collective: &str, algorithm: &str) -> Result<(), CollError> {
                match collective {
                    $(stringify!($collective) => {
                        let found = $name::ALL.iter().find(|known| known.name() == algorithm);
                        if found.is_none() && algorithm != "auto" {
                            let names: Vec<_> = $name::ALL.iter().map(|known| known.name()).collect();
                            return Err(CollError::UnknownAlgorithm {
                                collective: stringify!($collective),
                                name: algorithm.into(),
                                known: format!("auto, {}", names.join(", ")),
                            });
                        }
                        self.$collective = found.copied();
                        Ok(())
                    })+
                    _ => Err(CollError::UnknownAlgorithm {
                        collective: "collective operations",
                        name: collective.into(),
                        known: Self::COLLECTIVES.join(", "),
                    }),
                }
            }
        }
    };
}

algorithms! {
    /// How a barrier is done.
    barrier: Barrier {
        /// Everybody tells everybody at once.
        Linear = "linear",
        /// Everybody tells those 1, 2, 4, … ranks on: log₂ n rounds.
        Dissemination = "dissemination",
        /// Up a binomial tree and down again: 2 (n − 1) messages in all.
        Tree = "tree",
        /// Up the tree of each host, dissemination between hosts, down again.
        Node = "node",
    }
    /// How data is broadcast.
    bcast: Bcast {
        /// The root sends to everybody.
        Linear = "linear",
        /// A binomial tree: log₂ n rounds.
        Binomial = "binomial",
        /// Scattered on a tree, then collected in a ring.
        ScatterAllgather = "scatter_allgather",
        /// From one to the next in segments.
        Chain = "chain",
        /// Between hosts first, then inside of each.
        Node = "node",
    }
    /// How values are reduced at a root.
    reduce: Reduce {
        /// The root receives everything.
        Linear = "linear",
        /// A binomial tree: log₂ n rounds.
        Binomial = "binomial",
        /// Each process reduces a part, the root collects them (Rabenseifner).
        Rabenseifner = "rabenseifner",
        /// Inside of each host first, then between them.
        Node = "node",
    }
    /// How values are reduced for everybody.
    allreduce: Allreduce {
        /// Everybody sends everybody its vector at once, and combines them all.
        Linear = "linear",
        /// Whole vectors between partners at doubling distances: log₂ n rounds.
        RecursiveDoubling = "recursive_doubling",
        /// Each process reduces a part, then all are collected (Rabenseifner): 2 log₂ n rounds.
        Rabenseifner = "rabenseifner",
        /// Parts go twice around a ring: 2 (n − 1) rounds. Needs an operation that commutes.
        Ring = "ring",
        /// A reduction at rank 0 and a broadcast.
        ReduceBcast = "reduce_bcast",
        /// Inside of each host, between hosts, and back.
        Node = "node",
    }
    /// How blocks are gathered.
    gather: Gather {
        /// The root receives from everybody.
        Linear = "linear",
        /// A binomial tree: log₂ n rounds.
        Binomial = "binomial",
    }
    /// How blocks are scattered.
    scatter: Scatter {
        /// The root sends to everybody.
        Linear = "linear",
        /// A binomial tree: log₂ n rounds.
        Binomial = "binomial",
    }
    /// How blocks are gathered for everybody.
    allgather: Allgather {
        /// Everybody sends to everybody at once.
        Linear = "linear",
        /// Partners at distances 1, 2, 4, …: log₂ n rounds. Needs a power of two of processes, and equal blocks in a row.
        RecursiveDoubling = "recursive_doubling",
        /// Doubling numbers of blocks from doubling distances: ⌈log₂ n⌉ rounds, and a copy.
        Bruck = "bruck",
        /// Blocks go around: n − 1 rounds.
        Ring = "ring",
    }
    /// How everybody's blocks get to everybody.
    alltoall: Alltoall {
        /// All at once.
        Linear = "linear",
        /// One partner after the other: n − 1 rounds.
        Pairwise = "pairwise",
        /// Blocks travel with others on their way: ⌈log₂ n⌉ rounds, and copies. Needs equal blocks.
        Bruck = "bruck",
    }
    /// How parts of a reduction get to everybody.
    reduce_scatter: ReduceScatter {
        /// Everybody receives all contributions to its part at once.
        Linear = "linear",
        /// One after the other: n − 1 rounds. Needs an operation that commutes.
        Pairwise = "pairwise",
        /// Halves of vectors between partners: log₂ n rounds. Needs an operation that commutes.
        RecursiveHalving = "recursive_halving",
        /// A reduction at rank 0, then scattered.
        ReduceScatterv = "reduce_scatterv",
    }
    /// How prefixes are reduced.
    scan: Scan {
        /// From one rank to the next: n − 1 rounds.
        Linear = "linear",
        /// From doubling distances: ⌈log₂ n⌉ rounds.
        RecursiveDoubling = "recursive_doubling",
    }
}

/// The usual segment.
const SEGMENT: usize = 64 << 10;

/// What the table looks at, of one group of processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// How many processes.
    pub size: u32,
    /// Bytes of the whole vector.
    pub len: usize,
    /// Bytes of an element; 1 when nothing is reduced.
    pub extent: usize,
    /// Operands may change places.
    pub commutative: bool,
    /// There are several hosts, and more than one process on some.
    pub hosts: bool,
    /// All are known to be on one host.
    pub together: bool,
    /// Ranks go host by host.
    pub in_order: bool,
}

impl Facts {
    /// Whether hosts can be used for a reduction.
    const fn by_host(&self) -> bool {
        self.hosts && (self.commutative || self.in_order)
    }

    /// Whether messages to everybody at once cost less than rounds: each round is a switch between ranks where they share cores, and a way
    /// there and back over a network, to whose devices more messages are more calls. Measured, 2 cores, all on one host, against rounds: barriers
    /// of 3 ranks 0.5, of 4 0.8, of 8 0.7.
    const fn at_once(&self) -> bool {
        self.size > 2 && self.size <= if self.together { 8 } else { 4 }
    }

    const fn count(&self) -> usize {
        self.len / if self.extent == 0 { 1 } else { self.extent }
    }
}

impl Config {
    pub(crate) fn barrier(&self, facts: Facts) -> Barrier {
        let can = |algorithm: &Barrier| *algorithm != Barrier::Node || facts.hosts;
        self.barrier.filter(can).unwrap_or(match facts.hosts {
            true => Barrier::Node,
            false if facts.at_once() => Barrier::Linear,
            false => Barrier::Dissemination,
        })
    }

    pub(crate) fn bcast(&self, facts: Facts) -> Bcast {
        let can = |algorithm: &Bcast| *algorithm != Bcast::Node || facts.hosts;
        self.bcast.filter(can).unwrap_or_else(|| match facts.len {
            _ if facts.hosts => Bcast::Node,
            _ if facts.size <= 2 => Bcast::Binomial,
            // A segment for each process fills the chain; then nothing is sent twice.
            len if len / self.segment.max(1) >= 2 * facts.size as usize => Bcast::Chain,
            len if len >= 64 << 10 && facts.size >= 8 => Bcast::ScatterAllgather,
            _ => Bcast::Binomial,
        })
    }

    pub(crate) fn reduce(&self, facts: Facts) -> Reduce {
        let can = |algorithm: &Reduce| *algorithm != Reduce::Node || facts.by_host();
        self.reduce.filter(can).unwrap_or(match facts.len {
            _ if facts.by_host() => Reduce::Node,
            len if len >= 32 << 10 && facts.size >= 4 && facts.count() >= facts.size as usize => {
                Reduce::Rabenseifner
            }
            _ => Reduce::Binomial,
        })
    }

    pub(crate) fn allreduce(&self, facts: Facts) -> Allreduce {
        let can = |algorithm: &Allreduce| match algorithm {
            Allreduce::Node => facts.by_host(),
            Allreduce::Ring => facts.commutative,
            _ => true,
        };
        self.allreduce.filter(can).unwrap_or(match facts.len {
            _ if facts.by_host() => Allreduce::Node,
            len if len <= 256 && facts.at_once() => Allreduce::Linear,
            len if len <= 4 << 10 || facts.count() < facts.size as usize => {
                Allreduce::RecursiveDoubling
            }
            len if len >= 1 << 20 && facts.size > 2 && facts.commutative => Allreduce::Ring,
            _ => Allreduce::Rabenseifner,
        })
    }

    /// `len`: of one block.
    pub(crate) fn gather(&self, facts: Facts) -> Gather {
        self.gather.unwrap_or(match facts.len {
            len if len <= 2 << 10 && facts.size > 4 => Gather::Binomial,
            _ => Gather::Linear,
        })
    }

    /// `len`: of one block.
    pub(crate) fn scatter(&self, facts: Facts) -> Scatter {
        self.scatter.unwrap_or(match facts.len {
            len if len <= 2 << 10 && facts.size > 4 => Scatter::Binomial,
            _ => Scatter::Linear,
        })
    }

    /// `len`: of all blocks.
    pub(crate) fn allgather(&self, facts: Facts, equal_in_a_row: bool) -> Allgather {
        let doubling = equal_in_a_row && facts.size.is_power_of_two();
        let can = |algorithm: &Allgather| *algorithm != Allgather::RecursiveDoubling || doubling;
        self.allgather.filter(can).unwrap_or(match facts.len {
            _ if facts.size <= 3 => Allgather::Linear,
            len if len <= 64 << 10 && doubling => Allgather::RecursiveDoubling,
            len if len <= 64 << 10 => Allgather::Bruck,
            _ => Allgather::Ring,
        })
    }

    /// `len`: of one block; what differs between processes counts as 0.
    pub(crate) fn alltoall(&self, facts: Facts, equal: bool) -> Alltoall {
        let can = |algorithm: &Alltoall| *algorithm != Alltoall::Bruck || equal;
        self.alltoall.filter(can).unwrap_or(match facts.len {
            len if equal && len <= 128 && facts.size >= 8 => Alltoall::Bruck,
            len if len <= 8 << 10 && facts.size <= 64 => Alltoall::Linear,
            _ => Alltoall::Pairwise,
        })
    }

    /// `len`: of the whole vector.
    pub(crate) fn reduce_scatter(&self, facts: Facts) -> ReduceScatter {
        use ReduceScatter::{Linear, Pairwise, RecursiveHalving, ReduceScatterv};
        let can = |algorithm: &ReduceScatter| {
            facts.commutative || matches!(algorithm, Linear | ReduceScatterv)
        };
        self.reduce_scatter.filter(can).unwrap_or(match facts.len {
            _ if facts.size <= 2 => Linear,
            _ if !facts.commutative && facts.size <= 16 => Linear,
            _ if !facts.commutative => ReduceScatterv,
            len if len <= 64 << 10 => RecursiveHalving,
            _ => Pairwise,
        })
    }

    pub(crate) fn scan(&self, facts: Facts) -> Scan {
        let _ = facts;
        self.scan.unwrap_or(Scan::RecursiveDoubling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_set_and_wrong_ones_answered() {
        let mut config = Config::default();
        config.set("bcast", "chain").expect("it exists");
        assert_eq!(config.bcast, Some(Bcast::Chain));
        config.set("bcast", "auto").expect("it exists");
        assert_eq!(config.bcast, None);
        let error = config.set("bcast", "magic").expect_err("there is none");
        assert!(error.to_string().contains("there are: auto, linear, binomial"), "{error}");
        let error = config.set("bcst", "chain").expect_err("there is none");
        assert!(error.to_string().contains("bcast"), "{error}");
    }

    #[test]
    fn overrides_that_cannot_be_are_passed_over() {
        let (hosts, together, in_order) = (false, false, false);
        let facts =
            Facts { size: 4, len: 8, extent: 8, commutative: false, hosts, together, in_order };
        let config = Config { allreduce: Some(Allreduce::Ring), ..Config::default() };
        assert_eq!(config.allreduce(facts), Allreduce::Linear);
        let facts = Facts { commutative: true, ..facts };
        assert_eq!(config.allreduce(facts), Allreduce::Ring);
    }
}
