//! What the loops need between blocks, made of point-to-point messages: a barrier and a gather. Slow and simple on purpose;
//! nothing of this is inside a timed interval.

use ironweave::{Comm, Result};

const BARRIER: i32 = 30_000;
const GATHER: i32 = 30_001;
const BROADCAST: i32 = 30_002;

/// Returns when every rank has called it (dissemination, log2 of the ranks rounds).
///
/// # Errors
/// If a rank has failed.
pub fn barrier(comm: &Comm) -> Result<()> {
    let (rank, size) = (comm.rank(), comm.size());
    let mut step = 1;
    while step < size {
        let (to, from) = ((rank + step) % size, (rank + size - step) % size);
        comm.sendrecv(&[0u8], to, BARRIER, &mut [0u8], from, BARRIER)?;
        step *= 2;
    }
    Ok(())
}

/// Everybody's numbers, by rank; every rank gets them.
///
/// # Errors
/// If a rank has failed.
pub fn all_gather<const N: usize>(comm: &Comm, mine: [f64; N]) -> Result<Vec<[f64; N]>> {
    let mut all = vec![mine; comm.size() as usize];
    if comm.rank() == 0 {
        for from in 1..comm.size() {
            comm.recv(&mut all[from as usize], from, GATHER)?;
        }
        for to in 1..comm.size() {
            comm.send(all.as_slice(), to, BROADCAST)?;
        }
    } else {
        comm.send(&mine, 0, GATHER)?;
        comm.recv(all.as_mut_slice(), 0, BROADCAST)?;
    }
    Ok(all)
}

/// The mean of everybody's number; every rank gets it.
///
/// # Errors
/// If a rank has failed.
pub fn mean(comm: &Comm, mine: f64) -> Result<f64> {
    let all = all_gather(comm, [mine])?;
    Ok(all.iter().map(|[value]| value).sum::<f64>() / f64::from(comm.size()))
}
