//! Lists of ranks in PMI's text. `PMI_process_mapping`: which host each rank runs on, in the form all process managers share:
//! `(vector,(FIRST_NODE,NODES,RANKS_PER_NODE),…)`. Blocks repeat from the start until every rank
//! has a node.

/// The node of each of `size` ranks; `None` when `text` is not a mapping.
pub fn parse(text: &str, size: u32) -> Option<Vec<u32>> {
    let inner = text.trim().strip_prefix("(vector,")?.strip_suffix(')')?;
    let mut blocks = Vec::new();
    for block in inner.split("),") {
        let numbers = block.trim().trim_start_matches('(').trim_end_matches(')');
        let mut numbers = numbers.split(',').map(|number| number.trim().parse::<u32>());
        let (first, nodes, ranks) = (numbers.next()?, numbers.next()?, numbers.next()?);
        if numbers.next().is_some() {
            return None;
        }
        blocks.push((first.ok()?, nodes.ok()?, ranks.ok()?));
    }
    if blocks.iter().all(|(_, nodes, ranks)| *nodes == 0 || *ranks == 0) {
        return None;
    }
    let mut map = Vec::new();
    while map.len() < size as usize {
        for &(first, nodes, ranks) in &blocks {
            for node in 0..nodes {
                let node = first.checked_add(node)?;
                let room = size as usize - map.len();
                map.extend(std::iter::repeat_n(node, room.min(ranks as usize)));
                if map.len() == size as usize {
                    return Some(map);
                }
            }
        }
    }
    Some(map)
}

/// The mapping of ranks laid out in blocks: `counts[node]` ranks on each node in turn.
pub fn format(counts: &[u32]) -> String {
    let mut blocks: Vec<(usize, u32, u32)> = Vec::new();
    for (node, &count) in counts.iter().enumerate() {
        match blocks.last_mut() {
            Some((_, nodes, ranks)) if *ranks == count => *nodes += 1,
            _ => blocks.push((node, 1, count)),
        }
    }
    let blocks: Vec<String> =
        blocks.iter().map(|(first, nodes, ranks)| format!("({first},{nodes},{ranks})")).collect();
    format!("(vector,{})", blocks.join(","))
}

/// The ranks of a list like `0,3-5`; `None` when it is not one, or names ranks outside the job.
pub fn parse_ranks(text: &str, size: u32) -> Option<Vec<u32>> {
    let mut ranks = Vec::new();
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        if first > last || last >= size {
            return None;
        }
        ranks.extend(first..=last);
    }
    Some(ranks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mappings_of_real_launchers_are_read() {
        assert_eq!(parse("(vector,(0,1,4))", 4), Some(vec![0, 0, 0, 0]));
        assert_eq!(parse("(vector,(0,2,1))", 4), Some(vec![0, 1, 0, 1]));
        assert_eq!(parse("(vector,(0,2,2),(2,1,1))", 5), Some(vec![0, 0, 1, 1, 2]));
        for text in
            ["", "(vector,)", "(vector,(0,0,0))", "(vector,(0,1))", "vector", "(vector,(a,1,1))"]
        {
            assert_eq!(parse(text, 4), None, "{text}");
        }
    }

    #[test]
    fn lists_of_ranks_are_read_within_the_job() {
        assert_eq!(parse_ranks("", 4), Some(vec![]));
        assert_eq!(parse_ranks("0,2-3\n", 4), Some(vec![0, 2, 3]));
        for text in ["4", "3-1", "0-4000000000", "x", "-1"] {
            assert_eq!(parse_ranks(text, 4), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(counts in proptest::collection::vec(1u32..5, 1..9)) {
            let expected: Vec<u32> = counts
                .iter()
                .enumerate()
                .flat_map(|(node, &count)| vec![node as u32; count as usize])
                .collect();
            prop_assert_eq!(parse(&format(&counts), expected.len() as u32), Some(expected));
        }

        #[test]
        fn garbage_never_panics_or_runs_away(text in "\\(vector,[(),0-9 ]{0,40}\\)") {
            let map = parse(&text, 64);
            prop_assert!(map.is_none_or(|map| map.len() == 64));
        }
    }
}
