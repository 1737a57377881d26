//! Three panels side by side: time, messages and bytes per process, over the number of ranks on a logarithmic axis. What is
//! logarithmic is a straight line.

use super::detect::SILENCE;
use super::measure::Cost;
use std::fmt::Write;

const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 56.0;
const TOP: f64 = 40.0;
const COLOURS: [&str; 8] =
    ["#d55e00", "#cc79a7", "#0072b2", "#56b4e9", "#009e73", "#e69f00", "#999999", "#555555"];

/// What a panel shows of a measurement.
type Of = fn(&Cost) -> f64;

/// The picture.
pub(super) fn svg(costs: &[Cost]) -> String {
    let costs: Vec<Cost> = costs.iter().filter(|cost| cost.name != SILENCE).copied().collect();
    let mut names: Vec<&str> = Vec::new();
    for cost in &costs {
        if !names.contains(&cost.name) {
            names.push(cost.name);
        }
    }
    // References last, in grey.
    names.sort_by_key(|name| name.ends_with('B'));
    let powers = f64::from(costs.iter().map(|cost| cost.ranks).max().unwrap_or(2).ilog2().max(2));
    let panel = WIDTH + LEFT + 24.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        3.0 * panel + 12.0,
        HEIGHT + TOP + 92.0
    );
    let panels: [(&str, Of); 3] = [
        ("virtual time until the last process is done, µs", |cost| cost.ns as f64 / 1000.0),
        ("messages sent per process", |cost| cost.messages as f64 / f64::from(cost.ranks)),
        ("bytes sent per process", |cost| cost.bytes as f64 / f64::from(cost.ranks)),
    ];
    for (at, (title, value)) in panels.iter().enumerate() {
        let left = at as f64 * panel + LEFT;
        let top_value = nice(costs.iter().map(value).fold(0.0, f64::max));
        let x = |ranks: u32| left + f64::from(ranks.ilog2()) / powers * WIDTH;
        let y = |value: f64| TOP + HEIGHT - value / top_value * HEIGHT;
        let _ = writeln!(
            out,
            "<text x=\"{left}\" y=\"{}\" font-size=\"13\">{title}</text>",
            TOP - 14.0
        );
        for step in 0..=5 {
            let value = top_value * f64::from(step) / 5.0;
            let _ = writeln!(
                out,
                "<path d=\"M{left} {y:.1}h{WIDTH}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
                left - 6.0,
                y(value) + 4.0,
                y = y(value)
            );
        }
        for power in (0..=powers as u32).step_by(4) {
            let x = x(1 << power);
            let _ = writeln!(
                out,
                "<path d=\"M{x:.1} {TOP}v{HEIGHT}\" stroke=\"#eee\"/><text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                TOP + HEIGHT + 16.0,
                1u64 << power
            );
        }
        for (name, colour) in names.iter().zip(COLOURS) {
            let reference = name.ends_with('B');
            let points: String = costs
                .iter()
                .filter(|cost| cost.name == *name)
                .map(|cost| format!("{:.1},{:.1} ", x(cost.ranks), y(value(cost))))
                .collect();
            let dashes = if reference { " stroke-dasharray=\"5 4\"" } else { "" };
            let _ = writeln!(
                out,
                "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dashes}/>"
            );
        }
    }
    for (at, (name, colour)) in names.iter().zip(COLOURS).enumerate() {
        let (x, y) = (LEFT + 180.0 * at as f64, TOP + HEIGHT + 52.0);
        let _ = writeln!(
            out,
            "<path d=\"M{x} {y}h28\" stroke=\"{colour}\" stroke-width=\"3\"/><text x=\"{}\" y=\"{}\">{name}</text>",
            x + 34.0,
            y + 4.0
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{}\" fill=\"#555\">ranks, logarithmic; LogGP: L 900 ns, o 100 ns, g 50 ns, G 0.08 ns/B; \
         dashed: ordinary collectives in the same model</text>\n</svg>",
        TOP + HEIGHT + 80.0
    );
    out
}

/// A round number not below `value`.
fn nice(value: f64) -> f64 {
    let base = 10f64.powf(value.max(1e-9).log10().floor());
    [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0]
        .map(|step| step * base)
        .into_iter()
        .find(|top| *top >= value)
        .unwrap_or(value)
}
