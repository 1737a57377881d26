//! Where a datatype begins and ends: lower and upper bound, extent, true extent (MPI 5.0, sections 5.1.6 to 5.1.8).

use crate::error::TypeError;

/// The span of the data and, when a constructor set them, the bounds that count instead.
///
/// Bounds that were set stick: a datatype that contains one with set bounds takes its own from those alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// First byte of data and the byte after the last; none without data.
    data: Option<(i64, i64)>,
    /// Set bounds.
    set: Option<(i64, i64)>,
    /// The strictest alignment of the data; the upper bound is rounded up to it unless set.
    align: i64,
}

impl Bounds {
    /// Of data in `0..end`.
    pub fn of_data(end: i64, align: i64) -> Bounds {
        Bounds { data: Some((0, end)), set: None, align }
    }

    /// With the bounds set.
    pub fn with(self, lb: i64, ub: i64) -> Bounds {
        Bounds { set: Some((lb, ub)), ..self }
    }

    /// Lower bound.
    pub fn lb(&self) -> i64 {
        self.set.or(self.data).map_or(0, |(lb, _)| lb)
    }

    /// Distance from the lower to the upper bound.
    pub fn extent(&self) -> Result<i64, TypeError> {
        match (self.set, self.data) {
            (Some((lb, ub)), _) => ub.checked_sub(lb).ok_or(TypeError::TooLarge),
            (None, None) => Ok(0),
            (None, Some((lb, ub))) => {
                let span = ub.checked_sub(lb).ok_or(TypeError::TooLarge)?;
                let over = span % self.align;
                let padding = if over == 0 { 0 } else { self.align - over };
                span.checked_add(padding).ok_or(TypeError::TooLarge)
            }
        }
    }

    /// First byte of data.
    pub fn true_lb(&self) -> i64 {
        self.data.map_or(0, |(lb, _)| lb)
    }

    /// Distance from the first byte of data to the one after the last.
    pub fn true_extent(&self) -> Result<i64, TypeError> {
        let (lb, ub) = self.data.unwrap_or((0, 0));
        ub.checked_sub(lb).ok_or(TypeError::TooLarge)
    }

    /// The strictest alignment of the data.
    pub fn align(&self) -> i64 {
        self.align.max(1)
    }

    /// Of `count` of these, the first at `offset`, each `stride` after the one before.
    pub fn place(&self, count: i64, stride: i64, offset: i64) -> Result<Bounds, TypeError> {
        if count == 0 {
            return Ok(Bounds::default());
        }
        let first = i128::from(offset);
        let last = first + (i128::from(count) - 1) * i128::from(stride);
        let span = |(lb, ub): (i64, i64)| -> Result<(i64, i64), TypeError> {
            let fit = |value: i128| i64::try_from(value).map_err(|_| TypeError::TooLarge);
            Ok((fit(first.min(last) + i128::from(lb))?, fit(first.max(last) + i128::from(ub))?))
        };
        let (data, set) = (self.data.map(span).transpose()?, self.set.map(span).transpose()?);
        Bounds { data, set, align: self.align }.checked()
    }

    /// Itself, if its extents fit.
    fn checked(self) -> Result<Bounds, TypeError> {
        self.true_extent()?;
        self.extent()?;
        Ok(self)
    }

    /// Of both together.
    pub fn join(&self, other: &Bounds) -> Result<Bounds, TypeError> {
        let span = |a: Option<(i64, i64)>, b: Option<(i64, i64)>| match (a, b) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        Bounds {
            data: span(self.data, other.data),
            set: span(self.set, other.set),
            align: self.align.max(other.align),
        }
        .checked()
    }
}
