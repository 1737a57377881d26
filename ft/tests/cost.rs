//! `docs/cost.csv` is what the control plane costs as it is now, and `docs/cost.svg` its picture. There is no chance in either.

#[path = "../examples/curves/detect.rs"]
mod detect;
#[path = "../examples/curves/measure.rs"]
mod measure;
#[path = "../examples/curves/plot.rs"]
mod plot;
#[path = "sim/wire.rs"]
mod wire;

use measure::{Cost, Operation, allreduce, bcast, measure, parse};
use std::fs::read_to_string;

/// What larger sizes cost is measured by hand: the largest take minutes each.
const UP_TO: u32 = 1024;
const AGAIN: &str = "to write it again (minutes):\n  \
     cargo run --release -p ironweave-ft --example ironweave-ft-curves -- --up-to 1048576";

#[test]
fn what_the_document_says_of_the_costs_is_true() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs");
    let text = read_to_string(format!("{docs}/cost.csv")).expect("it is in the repository");
    let rows: Vec<Cost> = text.lines().filter_map(parse).collect();
    assert_eq!(rows.len() + 1, text.lines().count(), "all but the heading are rows");
    let mut checked = 0;
    for ranks in (1..=UP_TO.ilog2()).map(|power| 1 << power) {
        let mut now = vec![allreduce(ranks), bcast(ranks)];
        now.extend(Operation::ALL.map(|operation| measure(operation, ranks)));
        now.extend(detect::measure(ranks));
        for cost in &now {
            let told = rows.iter().find(|row| (row.name, row.ranks) == (cost.name, ranks));
            assert_eq!(told, Some(cost), "docs/cost.csv (left) is not true any more; {AGAIN}");
        }
        let told = rows.iter().filter(|row| row.ranks == ranks).count();
        assert_eq!(told, now.len(), "rows of {ranks} ranks; {AGAIN}");
        checked += told;
    }
    assert!(checked >= 90 && rows.len() == 2 * checked, "{checked} of {} rows", rows.len());
    let picture = read_to_string(format!("{docs}/cost.svg")).expect("it is in the repository");
    assert!(picture == plot::svg(&rows), "docs/cost.svg is not of docs/cost.csv; {AGAIN}");
}
