//! Simulated rails under the suite that real transports pass: one module for each way to report failure.

use ironweave_btl::Peer;
use ironweave_btl_conformance::{Harness, Place, Site, suite};
use ironweave_btl_sim::{Chaos, ChaosPlan, RailModel, SimBtl, SimFault, SimNet};

macro_rules! rail {
    ($module:ident, $model:expr, $many:expr) => {
        rail!($module, $model, $many, SimBtl, |rail, _: &Site| rail);
    };
    ($module:ident, $model:expr, $many:expr, $btl:ty, $wrap:expr) => {
        mod $module {
            use super::*;

            struct Sim;

            impl Harness for Sim {
                type Btl = $btl;
                type World = SimNet;
                const PLACE: Place = Place::Together;

                fn world(site: &Site) -> SimNet {
                    SimNet::new(site.seed)
                }

                fn open(net: &SimNet, site: &Site) -> Result<$btl, String> {
                    let wrap: fn(SimBtl, &Site) -> $btl = $wrap;
                    Ok(wrap(net.open(site.me, &$model), site))
                }

                fn idle(net: &SimNet) -> bool {
                    net.step()
                }

                fn kill(net: &SimNet, process: Peer) {
                    net.fault(SimFault::Kill(process));
                }

                fn many() -> u32 {
                    $many
                }
            }

            suite!(Sim);
        }
    };
}

rail!(tcp, RailModel::tcp(), 1000);
rail!(shm, RailModel::shm(), 200);
rail!(verbs, RailModel::verbs(), 200);
rail!(silent, RailModel::silent(), 200);

/// Delays, refusals and scarcity, all within the contract, on the rails with the most and the least to offer.
fn benign(rail: SimBtl, site: &Site) -> Chaos<SimBtl> {
    Chaos::new(rail, ChaosPlan::benign(site.seed ^ u64::from(site.me.0)))
}

rail!(chaos_over_tcp, RailModel::tcp(), 100, Chaos<SimBtl>, benign);
rail!(chaos_over_verbs, RailModel::verbs(), 100, Chaos<SimBtl>, benign);
