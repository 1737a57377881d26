//! The lines that programs print for `iw-timeline`: `event at=NANOSECONDS rank=RANK what=WORD`.

/// Something that happened to a rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// When, in nanoseconds by the clock that all ranks share.
    pub at: u64,
    /// To whom.
    pub rank: u32,
    /// What: `killed`, `detected`, `revoked`, …
    pub what: String,
}

/// Reads a line; `None` when it is not about an event.
///
/// # Errors
/// When it is, but a field is missing or wrong: which one.
pub fn parse(line: &str) -> Result<Option<Event>, String> {
    let mut words = line.split_whitespace();
    if words.next() != Some("event") {
        return Ok(None);
    }
    let (mut at, mut rank, mut what) = (None, None, None);
    for word in words {
        let wrong = || format!("`{word}` in `{line}`");
        let (name, value) = word.split_once('=').ok_or_else(wrong)?;
        match name {
            "at" => at = Some(value.parse().map_err(|_| wrong())?),
            "rank" => rank = Some(value.parse().map_err(|_| wrong())?),
            "what" => what = Some(value.to_owned()),
            _ => return Err(wrong()),
        }
    }
    match (at, rank, what) {
        (Some(at), Some(rank), Some(what)) => Ok(Some(Event { at, rank, what })),
        _ => Err(format!("`{line}` lacks one of at, rank and what")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_events_are_read_and_others_passed_over() {
        let event = Event { at: 12, rank: 3, what: "revoked".into() };
        assert_eq!(parse("event at=12 rank=3 what=revoked"), Ok(Some(event)));
        assert_eq!(parse("survivor rank=3"), Ok(None));
    }

    #[test]
    fn wrong_fields_are_named() {
        for (line, named) in [
            ("event at=x rank=3 what=revoked", "at=x"),
            ("event at=1 rank=3", "lacks"),
            ("event at=1 rank=3 wat=revoked", "wat=revoked"),
        ] {
            let error = parse(line).expect_err(line);
            assert!(error.contains(named), "{error}");
        }
    }
}
