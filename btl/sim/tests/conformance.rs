//! Simulated rails under the suite that real transports pass: one module for each way to report failure.

use ironweave_btl::Peer;
use ironweave_btl_conformance::{Harness, Place, Site, suite};
use ironweave_btl_sim::{RailModel, SimBtl, SimFault, SimNet};

macro_rules! rail {
    ($module:ident, $model:expr, $many:expr) => {
        mod $module {
            use super::*;

            struct Sim;

            impl Harness for Sim {
                type Btl = SimBtl;
                type World = SimNet;
                const PLACE: Place = Place::Together;

                fn world(site: &Site) -> SimNet {
                    SimNet::new(site.seed)
                }

                fn open(net: &SimNet, site: &Site) -> Result<SimBtl, String> {
                    Ok(net.open(site.me, &$model))
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
