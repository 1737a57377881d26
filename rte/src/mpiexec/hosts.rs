//! Host files, in the forms of the two families of launchers: a host a line, with `slots=N` or `:N`.

use crate::launch::placement::Host;

/// Reads a host file; what follows `#` is a comment, and a host without a number has one slot.
///
/// # Errors
/// In words, with the line: a number that is none or zero, an empty name, no hosts at all.
pub fn parse(text: &str) -> Result<Vec<Host>, String> {
    let mut hosts: Vec<Host> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        let wrong = |what: &str| format!("line {}: {what}", index + 1);
        let (name, after) = match first.rsplit_once(':') {
            Some((name, slots)) if !slots.contains(']') => (name, Some(slots)),
            _ => (first, None),
        };
        // `max_slots=` and what else may follow says nothing to us.
        let named = words.find_map(|word| word.strip_prefix("slots="));
        let slots = match after.or(named) {
            Some(number) => number
                .parse()
                .ok()
                .filter(|slots| *slots > 0)
                .ok_or_else(|| wrong(&format!("{number:?} is no number of slots")))?,
            None => 1u32,
        };
        if name.is_empty() || name.starts_with('-') {
            return Err(wrong(&format!("{first:?} is no host")));
        }
        match hosts.iter_mut().find(|host| host.name == name) {
            Some(host) => host.slots = host.slots.saturating_add(slots),
            None => hosts.push(Host { name: name.to_owned(), slots }),
        }
    }
    match hosts.is_empty() {
        true => Err("there is no host in it".to_owned()),
        false => Ok(hosts),
    }
}

/// Gives hosts so many more slots, in turn, that `size` ranks fit.
pub fn stretch(hosts: &mut [Host], size: u32) {
    let slots = hosts.iter().fold(0u32, |sum, host| sum.saturating_add(host.slots));
    let (count, missing) = (hosts.len() as u32, size.saturating_sub(slots));
    for (index, host) in (0u32..).zip(hosts) {
        host.slots += missing / count + u32::from(index < missing % count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, slots: u32) -> Host {
        Host { name: name.into(), slots }
    }

    #[test]
    fn both_forms_are_read() {
        let text = "# cluster\na slots=2 max_slots=4\n\nb:3\nc\na\n[::1]:2\n";
        let expected = [host("a", 3), host("b", 3), host("c", 1), host("[::1]", 2)];
        assert_eq!(parse(text).unwrap(), expected);
        for (wrong, word) in
            [("a:0", "line 1"), ("a\nb slots=x", "line 2"), ("-o", "no host"), ("#", "no host")]
        {
            let error = parse(wrong).unwrap_err();
            assert!(error.contains(word), "{wrong:?}: {error}");
        }
    }

    #[test]
    fn more_ranks_than_slots_go_round() {
        let mut hosts = vec![host("a", 1), host("b", 2)];
        stretch(&mut hosts, 6);
        assert_eq!(hosts, [host("a", 3), host("b", 3)]);
        stretch(&mut hosts, 7);
        assert_eq!(hosts, [host("a", 4), host("b", 3)]);
        stretch(&mut hosts, 2);
        assert_eq!(hosts, [host("a", 4), host("b", 3)]);
    }
}
