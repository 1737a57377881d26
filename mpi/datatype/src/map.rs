//! A type map compiled: bounds, signature and program together, and the operations all constructors are made of.

use crate::basic::Basic;
use crate::bounds::Bounds;
use crate::error::TypeError;
use crate::program::{self, Piece, Program};
use crate::signature::{self, Signature};
use std::sync::Arc;

/// A type map: what is where.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    pub bounds: Bounds,
    pub signature: Signature,
    pub program: Arc<Program>,
}

impl Map {
    /// That of a predefined type.
    pub fn of(basic: Basic) -> Map {
        let mut program = program::Builder::default();
        let block = |len: usize| program::single(Piece::block(0, len as i64));
        let end = match basic.pair() {
            None => {
                program.push(&block(basic.size()), 1, 0, 0);
                basic.size()
            }
            Some((value, index)) => {
                let second = basic.second_offset();
                program.push(&block(value.size()), 1, 0, 0);
                program.push(&block(index.size()), 1, 0, second as i64);
                second + index.size()
            }
        };
        let bounds = Bounds::of_data(end as i64, basic.align() as i64);
        Map { bounds, signature: Signature::of(basic), program: program.finish() }
    }

    /// `count` of it, `stride` bytes apart.
    pub fn repeat(&self, count: i64, stride: i64) -> Result<Map, TypeError> {
        let bounds = self.bounds.place(count, stride, 0)?;
        let signature = self.signature.times(count)?;
        Ok(Map { bounds, signature, program: Program::repeat(&self.program, count, stride) })
    }

    /// It, `offset` bytes further on.
    pub fn shifted(&self, offset: i64) -> Result<Map, TypeError> {
        let mut builder = Builder::default();
        builder.push(self, 1, 0, offset)?;
        Ok(builder.finish())
    }
}

/// A sequence of maps in the making.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    bounds: Bounds,
    signature: signature::Builder,
    program: program::Builder,
}

impl Builder {
    /// Appends `count` times `map`, the first at `offset`, each `stride` after the one before.
    pub fn push(
        &mut self,
        map: &Map,
        count: i64,
        stride: i64,
        offset: i64,
    ) -> Result<(), TypeError> {
        self.bounds = self.bounds.join(&map.bounds.place(count, stride, offset)?)?;
        self.signature.push(&map.signature, count)?;
        self.program.push(&map.program, count, stride, offset);
        Ok(())
    }

    pub fn finish(self) -> Map {
        let (signature, program) = (self.signature.finish(), self.program.finish());
        Map { bounds: self.bounds, signature, program }
    }
}
