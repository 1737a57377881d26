//! Groups (MPI 5.0, §7.3): sets of processes with an order. All calls are local.

use crate::comm;
use crate::handle::Table;
use crate::prelude::*;
use ironweave_core::{Comparison, Group, GroupError, RankRange};

/// Groups that users made.
static GROUPS: Table<Group> = Table::new();

/// A handle for a group.
pub fn adopt(group: Group) -> MPI_Group {
    if group.is_empty() { MPI_GROUP_EMPTY } else { MPI_Group(GROUPS.insert(group)) }
}

/// The group behind a handle.
///
/// # Errors
/// `MPI_ERR_GROUP`.
pub fn get(handle: MPI_Group) -> Result<Group> {
    match handle {
        MPI_GROUP_EMPTY => Ok(Group::empty()),
        MPI_GROUP_NULL => Err(fail(MPI_ERR_GROUP, "the group is MPI_GROUP_NULL")),
        MPI_Group(word) => {
            let group = GROUPS.get(word).cloned();
            group.ok_or_else(|| fail(MPI_ERR_GROUP, format!("{word:#x} is no group")))
        }
    }
}

/// The handle of a Fortran handle.
pub fn of_fortran(low: u32) -> Option<usize> {
    GROUPS.of_fortran(low)
}

impl From<GroupError> for Fail {
    fn from(error: GroupError) -> Fail {
        let class = match error {
            GroupError::Rank { .. } | GroupError::Twice(_) => MPI_ERR_RANK,
            GroupError::Stride => MPI_ERR_ARG,
        };
        fail(class, error.to_string())
    }
}

/// This process's number in the world.
fn myself() -> Result<u32> {
    Ok(comm::everyone()?.rank)
}

fn rank(group: &Group, rank: c_int) -> Result<u32> {
    let size = group.len();
    match u32::try_from(rank) {
        Ok(rank) if rank < size => Ok(rank),
        _ => Err(GroupError::Rank { rank: i64::from(rank), size }.into()),
    }
}

/// How many entries an array of the caller's has.
fn entries(n: c_int) -> Result<usize> {
    crate::count::count("n", n).map_err(|error| error.recoded(MPI_ERR_ARG))
}

/// # Safety
/// The array is as long.
unsafe fn ranks(group: &Group, n: c_int, ranks: *const c_int) -> Result<Vec<u32>> {
    let n = entries(n)?;
    array("ranks", ranks, n)?;
    // SAFETY: this function's contract.
    (0..n).map(|index| rank(group, unsafe { *ranks.add(index) })).collect()
}

/// # Safety
/// The array is as long.
unsafe fn ranges(group: &Group, n: c_int, ranges: *const [c_int; 3]) -> Result<Vec<RankRange>> {
    let n = entries(n)?;
    array("ranges", ranges, n)?;
    let range = |index| {
        // SAFETY: this function's contract.
        let [first, last, stride] = unsafe { *ranges.add(index) };
        Ok((rank(group, first)?, rank(group, last)?, stride))
    };
    (0..n).map(range).collect()
}

mpi! {
    fn MPI_Group_size(group: MPI_Group, size: *mut c_int) on none {
        // SAFETY: the caller's result.
        unsafe { size.write(get(group)?.len() as c_int) };
        Ok(())
    }

    fn MPI_Group_rank(group: MPI_Group, rank: *mut c_int) on none {
        let here = get(group)?.rank_of(myself()?);
        // SAFETY: the caller's result.
        unsafe { rank.write(here.map_or(MPI_UNDEFINED, |rank| rank as c_int)) };
        Ok(())
    }

    fn MPI_Group_translate_ranks(group1: MPI_Group, n: c_int, ranks1: *const c_int, group2: MPI_Group, ranks2: *mut c_int) on none {
        let (from, to) = (get(group1)?, get(group2)?);
        array("ranks1", ranks1, entries(n)?)?;
        array("ranks2", ranks2, entries(n)?)?;
        for index in 0..entries(n)? {
            // SAFETY: the caller's arrays.
            unsafe {
                let there = match *ranks1.add(index) {
                    MPI_PROC_NULL => MPI_PROC_NULL,
                    one => {
                        let process = from.process(rank(&from, one)?);
                        let there = process.and_then(|process| to.rank_of(process));
                        there.map_or(MPI_UNDEFINED, |rank| rank as c_int)
                    }
                };
                *ranks2.add(index) = there;
            }
        }
        Ok(())
    }

    fn MPI_Group_compare(group1: MPI_Group, group2: MPI_Group, result: *mut c_int) on none {
        let how = match get(group1)?.compare(&get(group2)?) {
            Comparison::Identical => MPI_IDENT,
            Comparison::Similar => MPI_SIMILAR,
            Comparison::Unequal => MPI_UNEQUAL,
        };
        // SAFETY: the caller's result.
        unsafe { result.write(how) };
        Ok(())
    }

    fn MPI_Group_union(group1: MPI_Group, group2: MPI_Group, newgroup: *mut MPI_Group) on none {
        // SAFETY: the caller's result.
        unsafe { newgroup.write(adopt(get(group1)?.union(&get(group2)?))) };
        Ok(())
    }

    fn MPI_Group_intersection(group1: MPI_Group, group2: MPI_Group, newgroup: *mut MPI_Group) on none {
        // SAFETY: the caller's result.
        unsafe { newgroup.write(adopt(get(group1)?.intersection(&get(group2)?))) };
        Ok(())
    }

    fn MPI_Group_difference(group1: MPI_Group, group2: MPI_Group, newgroup: *mut MPI_Group) on none {
        // SAFETY: the caller's result.
        unsafe { newgroup.write(adopt(get(group1)?.difference(&get(group2)?))) };
        Ok(())
    }

    fn MPI_Group_incl(group: MPI_Group, n: c_int, ranks: *const c_int, newgroup: *mut MPI_Group) on none {
        let group = get(group)?;
        // SAFETY: the caller's array and result.
        unsafe { newgroup.write(adopt(group.incl(&self::ranks(&group, n, ranks)?)?)) };
        Ok(())
    }

    fn MPI_Group_excl(group: MPI_Group, n: c_int, ranks: *const c_int, newgroup: *mut MPI_Group) on none {
        let group = get(group)?;
        // SAFETY: the caller's array and result.
        unsafe { newgroup.write(adopt(group.excl(&self::ranks(&group, n, ranks)?)?)) };
        Ok(())
    }

    fn MPI_Group_range_incl(group: MPI_Group, n: c_int, ranges: *const [c_int; 3], newgroup: *mut MPI_Group) on none {
        let group = get(group)?;
        // SAFETY: the caller's array and result.
        unsafe { newgroup.write(adopt(group.range_incl(&self::ranges(&group, n, ranges)?)?)) };
        Ok(())
    }

    fn MPI_Group_range_excl(group: MPI_Group, n: c_int, ranges: *const [c_int; 3], newgroup: *mut MPI_Group) on none {
        let group = get(group)?;
        // SAFETY: the caller's array and result.
        unsafe { newgroup.write(adopt(group.range_excl(&self::ranges(&group, n, ranges)?)?)) };
        Ok(())
    }

    fn MPI_Group_free(group: *mut MPI_Group) on none {
        // SAFETY: the caller's handle.
        unsafe {
            get(*group)?;
            GROUPS.remove((*group).0);
            group.write(MPI_GROUP_NULL);
        }
        Ok(())
    }

    fn MPI_Comm_group(comm: MPI_Comm, group: *mut MPI_Group) on comm {
        let there = comm::get(comm)?;
        let members = process::enter()?.engine.group(there.core)?.clone();
        // SAFETY: the caller's result.
        unsafe { group.write(adopt(members)) };
        Ok(())
    }

    fn MPI_Comm_remote_group(comm: MPI_Comm, group: *mut MPI_Group) on comm {
        let there = comm::get(comm)?;
        let members = process::enter()?.engine.remote_group(there.core)?.cloned();
        let members = members.ok_or_else(|| fail(MPI_ERR_COMM, "it is no inter-communicator"))?;
        // SAFETY: the caller's result.
        unsafe { group.write(adopt(members)) };
        Ok(())
    }
}
