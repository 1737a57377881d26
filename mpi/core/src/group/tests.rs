//! Groups against plain lists of processes.

use super::*;
use proptest::prelude::*;

type Plain = Vec<u32>;

/// Distinct processes with some order in them: pieces of runs, up and down.
fn processes() -> impl Strategy<Value = Plain> {
    prop::collection::vec((0u32..40, 1u32..8, any::<bool>()), 0..8).prop_map(|pieces| {
        let mut plain = Plain::new();
        for (first, len, backwards) in pieces {
            let mut piece: Plain = (first..first + len).filter(|p| !plain.contains(p)).collect();
            if backwards {
                piece.reverse();
            }
            plain.extend(piece);
        }
        plain
    })
}

fn group(plain: &[u32]) -> Group {
    Group::of(plain.iter().copied()).expect("distinct")
}

fn plain(group: &Group) -> Plain {
    group.iter().collect()
}

/// What a range names, by the letter of the standard.
fn ranks_of((first, last, stride): RankRange) -> Vec<i64> {
    let (first, last, stride) = (i64::from(first), i64::from(last), i64::from(stride));
    let steps = (last - first) / stride;
    if (last - first) * stride < 0 {
        Vec::new()
    } else {
        (0..=steps).map(|i| first + i * stride).collect()
    }
}

proptest! {
    #[test]
    fn set_operations_agree_with_lists(a in processes(), b in processes()) {
        let (ga, gb) = (group(&a), group(&b));
        let mut union = a.clone();
        union.extend(b.iter().filter(|p| !a.contains(p)));
        prop_assert_eq!(plain(&ga.union(&gb)), union);
        let both: Plain = a.iter().copied().filter(|p| b.contains(p)).collect();
        prop_assert_eq!(plain(&ga.intersection(&gb)), both);
        let only: Plain = a.iter().copied().filter(|p| !b.contains(p)).collect();
        prop_assert_eq!(plain(&ga.difference(&gb)), only);
        let (mut sa, mut sb) = (a.clone(), b.clone());
        sa.sort_unstable();
        sb.sort_unstable();
        let expected = match (a == b, sa == sb) {
            (true, _) => Comparison::Identical,
            (_, true) => Comparison::Similar,
            _ => Comparison::Unequal,
        };
        prop_assert_eq!(ga.compare(&gb), expected);
        let mut turned = a.clone();
        turned.reverse();
        let same = if turned == a { Comparison::Identical } else { Comparison::Similar };
        prop_assert_eq!(ga.compare(&group(&turned)), same);
    }

    #[test]
    fn ranks_and_processes_agree_with_lists(a in processes(), b in processes()) {
        let (ga, gb) = (group(&a), group(&b));
        prop_assert_eq!(ga.len() as usize, a.len());
        for (rank, &process) in (0..).zip(&a) {
            prop_assert_eq!((ga.process(rank), ga.rank_of(process)), (Some(process), Some(rank)));
        }
        prop_assert_eq!(ga.process(ga.len()), None);
        for process in 0..50 {
            prop_assert_eq!(ga.contains(process), a.contains(&process));
        }
        let ranks: Vec<u32> = (0..ga.len()).rev().collect();
        let there = |&rank: &u32| b.iter().position(|&p| p == a[rank as usize]).map(|at| at as u32);
        let expected: Vec<Option<u32>> = ranks.iter().map(there).collect();
        prop_assert_eq!(ga.translate_ranks(&ranks, &gb), Ok(expected));
    }

    #[test]
    fn selections_by_rank_agree_with_lists(a in processes(), picks in prop::collection::vec(0u32..60, 0..6)) {
        let ga = group(&a);
        let mut once = picks.clone();
        once.sort_unstable();
        once.dedup();
        let wrong = picks.iter().any(|&r| r as usize >= a.len()) || once.len() < picks.len();
        let taken: Plain = picks.iter().filter_map(|&r| a.get(r as usize).copied()).collect();
        prop_assert_eq!(ga.incl(&picks).map(|g| plain(&g)).ok(), (!wrong).then(|| taken.clone()));
        let left: Plain = a.iter().copied().filter(|p| !taken.contains(p)).collect();
        prop_assert_eq!(ga.excl(&picks).map(|g| plain(&g)).ok(), (!wrong).then_some(left));
    }

    #[test]
    fn ranges_agree_with_lists(
        a in processes(),
        ranges in prop::collection::vec((0u32..30, 0u32..30, prop::sample::select(vec![-3, -1, 1, 2, 5])), 0..3),
    ) {
        let ga = group(&a);
        let ranks: Vec<i64> = ranges.iter().flat_map(|&range| ranks_of(range)).collect();
        let mut once = ranks.clone();
        once.sort_unstable();
        once.dedup();
        let right = ranks.iter().all(|&r| (r as usize) < a.len()) && once.len() == ranks.len();
        let taken: Plain = ranks.iter().filter_map(|&r| a.get(r as usize).copied()).collect();
        prop_assert_eq!(ga.range_incl(&ranges).map(|g| plain(&g)).ok(), right.then(|| taken.clone()));
        let left: Plain = a.iter().copied().filter(|p| !taken.contains(p)).collect();
        prop_assert_eq!(ga.range_excl(&ranges).map(|g| plain(&g)).ok(), right.then_some(left));
    }
}

#[test]
fn a_million_ranks_are_a_few_runs() {
    let world = Group::range(0, 1 << 20);
    let odd_one_out = world.excl(&[1 << 19]).expect("it is there");
    assert_eq!(odd_one_out.0.runs.len(), 2);
    assert_eq!(odd_one_out.rank_of((1 << 19) + 1), Some(1 << 19));
    let back = odd_one_out.union(&world);
    assert_eq!(back.compare(&world), Comparison::Similar);
    let halves = world.range_incl(&[(1 << 19, (1 << 20) - 1, 1), (0, (1 << 19) - 1, 1)]);
    let halves = halves.expect("ranges inside");
    assert_eq!((halves.0.runs.len(), halves.process(0)), (2, Some(1 << 19)));
    assert_eq!(world.intersection(&halves), world);
    assert!(world.range_excl(&[(0, (1 << 20) - 1, 1)]).expect("all").is_empty());
}

#[test]
fn wrong_ranks_are_named() {
    let three = Group::range(5, 3);
    assert_eq!(three.incl(&[0, 3]), Err(GroupError::Rank { rank: 3, size: 3 }));
    assert_eq!(three.incl(&[1, 1]), Err(GroupError::Twice(6)));
    assert_eq!(three.range_incl(&[(0, 2, 0)]), Err(GroupError::Stride));
    assert_eq!(Group::of([4, 4]), Err(GroupError::Twice(4)));
    assert_eq!(format!("{:?}", three.union(&Group::range(1, 1))), "Group[5..=7, 1]");
}
