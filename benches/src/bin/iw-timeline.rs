//! `iw-timeline`: a picture of a recovery, who learned what and when.
//!
//! Reads lines `event at=NANOSECONDS rank=RANK what=WORD` (others are passed over), by one clock, and writes an SVG: a row a
//! rank, time from the first `killed` on (logarithmic), a mark for each event and a bar from each to the next of the same rank.

use clap::Parser;
use ironweave_benches::timeline::{Event, parse};
use plotters::prelude::*;
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead as _, stdin};
use std::path::PathBuf;

/// Draws the events of a recovery, read from standard input, as an SVG.
#[derive(Parser, Debug)]
#[command(name = "iw-timeline")]
struct Options {
    /// The picture's title.
    #[arg(long, default_value = "Recovery after a killed process")]
    title: String,
    /// Where to write it.
    output: PathBuf,
}

/// One colour for each kind of event, in the order of their first appearance.
const COLOURS: [RGBColor; 8] = [
    RGBColor(200, 30, 30),
    RGBColor(230, 140, 20),
    RGBColor(190, 170, 20),
    RGBColor(40, 140, 60),
    RGBColor(30, 110, 190),
    RGBColor(110, 60, 170),
    RGBColor(90, 90, 90),
    RGBColor(200, 80, 150),
];

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let mut events = Vec::new();
    for line in stdin().lock().lines() {
        if let Some(event) = parse(&line?)? {
            events.push(event);
        }
    }
    let start = events.iter().filter(|event| event.what == "killed").map(|event| event.at).min();
    let start = start.ok_or("no event `killed` to count the time from")?;
    events.retain(|event| event.at >= start);
    events.sort_by_key(|event| event.at);
    draw(&options, &events, start)
}

fn draw(options: &Options, events: &[Event], start: u64) -> Result<(), Box<dyn Error>> {
    // What happens within the first microsecond stands at its end: the axis is logarithmic.
    let micros = |at: u64| ((at - start) as f64 / 1000.0).max(1.0);
    let mut kinds: Vec<&str> = Vec::new();
    for event in events {
        if !kinds.contains(&event.what.as_str()) {
            kinds.push(&event.what);
        }
    }
    let mut rows: BTreeMap<u32, Vec<&Event>> = BTreeMap::new();
    for event in events {
        rows.entry(event.rank).or_default().push(event);
    }
    let end = events.last().map_or(1.0, |event| micros(event.at)).max(10.0) * 1.3;
    let ranks = rows.keys().next_back().map_or(0, |rank| rank + 1);
    let height = 160 + 44 * ranks;
    let root = SVGBackend::new(&options.output, (1000, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(&options.title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d((0.9..end).log_scale(), -0.7..f64::from(ranks) - 0.3)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .x_desc("microseconds after the kill")
        .y_labels(ranks as usize + 1)
        .y_label_formatter(&|rank| {
            if (rank - rank.round()).abs() < 0.01 {
                format!("rank {rank:.0}")
            } else {
                String::new()
            }
        })
        .draw()?;
    for (index, &kind) in kinds.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let mut bars = Vec::new();
        let mut marks = Vec::new();
        for (&rank, row) in &rows {
            let rank = f64::from(rank);
            for (place, event) in row.iter().enumerate().filter(|(_, event)| event.what == kind) {
                let from = micros(event.at);
                if let Some(next) = row.get(place + 1) {
                    let corners = [(from, rank - 0.16), (micros(next.at), rank + 0.16)];
                    bars.push(Rectangle::new(corners, colour.mix(0.35).filled()));
                }
                marks.push(Circle::new((from, rank), 5, colour.filled()));
            }
        }
        chart.draw_series(bars)?;
        chart
            .draw_series(marks)?
            .label(kind)
            .legend(move |(x, y)| Circle::new((x + 8, y), 5, colour.filled()));
    }
    chart.configure_series_labels().border_style(BLACK.mix(0.3)).background_style(WHITE).draw()?;
    root.present()?;
    Ok(())
}
