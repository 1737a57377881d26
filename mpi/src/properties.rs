//! What a program hangs on a communicator: a name, hints, values under keys of its own, and what becomes of errors (MPI standard
//! 5.0, 7.7, 7.8, 9.3).
//!
//! Callbacks run in the thread that makes the call, while nothing of this crate is locked or borrowed: they may use any
//! communicator. Two threads that change the values of one communicator at the same time have to agree on an order first.

use crate::threading::{Handle, Threading};
use crate::{Comm, Error, Result};
use ironweave_core::{Attributes, CommHandle, ErrorHandler, Keyval, Keyvals, Raised, Value};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// Hints to this and other libraries, which may use or ignore them.
pub type Hints = BTreeMap<String, String>;

/// What a communicator does about an error of one of its calls. Communicators made from it inherit that.
#[derive(Clone, Default)]
pub enum OnError {
    /// The call answers it. What Rust programs start with.
    #[default]
    Return,
    /// It ends the job (`MPI_ERRORS_ARE_FATAL`).
    Fatal,
    /// It is handed to this function, then the call answers it.
    Call(Arc<dyn Fn(&Error) + Send + Sync>),
}

impl OnError {
    fn into_core(self) -> ErrorHandler {
        match self {
            OnError::Return => ErrorHandler::Return,
            OnError::Fatal => ErrorHandler::Fatal,
            OnError::Call(function) => ErrorHandler::User(Arc::new(move |_, error| {
                if let Some(error) = error.downcast_ref::<Error>() {
                    function(error);
                }
            })),
        }
    }
}

impl fmt::Debug for OnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OnError::Return => "Return",
            OnError::Fatal => "Fatal",
            OnError::Call(_) => "Call",
        })
    }
}

/// A key under which communicators hold values of type `V`. A program makes it once ([`Comm::key`], [`Comm::key_with`]); it
/// works on all communicators of this process.
pub struct Key<V> {
    key: Keyval,
    _values: PhantomData<fn(V) -> V>,
}

impl<V> Clone for Key<V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Key<V> {}

impl<V> fmt::Debug for Key<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.key)
    }
}

/// A code of the program's own, with which a callback refuses.
pub type Refusal = i32;

impl<T: Threading> Comm<T> {
    /// Names the communicator, for errors and dumps (`MPI_Comm_set_name`). Only this process sees it.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn set_name(&self, name: &str) -> Result<()> {
        self.handle().with(|engine| Ok(engine.set_name(self.core(), name)?))
    }

    /// Its name; empty until it is given one (`MPI_Comm_get_name`).
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn name(&self) -> Result<String> {
        self.handle().with(|engine| Ok(engine.name(self.core())?.to_owned()))
    }

    /// Gives it hints, which duplicates inherit (`MPI_Comm_set_info`).
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn set_hints(&self, hints: Hints) -> Result<()> {
        self.handle().with(|engine| Ok(engine.set_info(self.core(), Some(Arc::new(hints)))?))
    }

    /// Its hints (`MPI_Comm_get_info`).
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn hints(&self) -> Result<Hints> {
        self.handle().with(|engine| {
            let info = engine.info(self.core())?;
            Ok(info.and_then(|info| info.downcast_ref::<Hints>()).cloned().unwrap_or_default())
        })
    }

    /// What becomes of errors of this communicator's calls (`MPI_Comm_set_errhandler`). Whatever it is, the call ends: a function
    /// that is called may look, count or recover, but not repeat the call.
    ///
    /// ```
    /// # let world = ironweave::World::init()?;
    /// use ironweave::OnError;
    /// use std::sync::{Arc, atomic::{AtomicU32, Ordering}};
    /// let errors = Arc::new(AtomicU32::new(0));
    /// let count = Arc::clone(&errors);
    /// world.comm().on_error(OnError::Call(Arc::new(move |_| {
    ///     count.fetch_add(1, Ordering::Relaxed);
    /// })))?;
    /// let heir = world.comm().dup()?;
    /// assert!(heir.send(&[0u8], heir.size(), 0).is_err(), "there is no such rank");
    /// assert_eq!(errors.load(Ordering::Relaxed), 1);
    /// # Ok::<(), ironweave::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn on_error(&self, what: OnError) -> Result<()> {
        self.handle().with(|engine| Ok(engine.set_errhandler(self.core(), what.into_core())?))
    }

    /// Does with an error of the call `function` what the communicator says.
    #[inline]
    pub(crate) fn raise<R>(&self, function: &'static str, outcome: Result<R>) -> Result<R> {
        outcome.inspect_err(|error| self.raised(function, error))
    }

    #[cold]
    fn raised(&self, function: &'static str, error: &Error) {
        let what = self.handle().with(|engine| Ok(engine.raise(self.core(), function, error)));
        match what {
            Ok(Raised::Call(handler)) => handler(self.core(), error),
            Ok(Raised::Fatal(text)) => {
                // The user asked for it (law 3).
                tracing::error!("{text}");
                eprintln!("{text}");
                let _: Result<()> = self.handle().with(|engine| engine.job.abort(1));
                std::process::exit(1)
            }
            Ok(Raised::Return) | Err(_) => {}
        }
    }

    /// Makes a key whose values duplicates of a communicator do not get (`MPI_Comm_create_keyval`).
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn key<V: Any + Send + Sync>(&self) -> Result<Key<V>> {
        self.new_key(None, None)
    }

    /// Makes a key with callbacks: `copy` says what a duplicate gets; `delete` is called before a value goes, because it is
    /// replaced, removed, or its communicator is freed. Both may refuse: then the duplication fails at all members, or
    /// the value stays (but for a communicator that is freed).
    ///
    /// ```
    /// # let world = ironweave::World::init()?;
    /// let comm = world.comm();
    /// let depth = comm.key_with(|depth: &u32| Ok(Some(depth + 1)), |_| Ok(()))?;
    /// comm.set(depth, 0)?;
    /// let child = comm.dup()?;
    /// assert_eq!(child.get(depth)?.as_deref(), Some(&1));
    /// # Ok::<(), ironweave::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn key_with<V: Any + Send + Sync>(
        &self,
        copy: impl Fn(&V) -> std::result::Result<Option<V>, Refusal> + Send + Sync + 'static,
        delete: impl Fn(&V) -> std::result::Result<(), Refusal> + Send + Sync + 'static,
    ) -> Result<Key<V>> {
        let copy = move |_: CommHandle, _: Keyval, value: &Value| match value.downcast_ref() {
            Some(value) => Ok(copy(value)?.map(|value| Arc::new(value) as Value)),
            None => Ok(None),
        };
        let delete = move |_: CommHandle, _: Keyval, value: &Value| {
            value.downcast_ref().map_or(Ok(()), &delete)
        };
        self.new_key(Some(Arc::new(copy)), Some(Arc::new(delete)))
    }

    fn new_key<V>(
        &self,
        copy: Option<ironweave_core::CopyFn>,
        delete: Option<ironweave_core::DeleteFn>,
    ) -> Result<Key<V>> {
        let key = self.handle().with(|engine| Ok(engine.keyvals.create(copy, delete)))?;
        Ok(Key { key, _values: PhantomData })
    }

    /// Ends a key: nothing can be set under it any more; values that are there stay (`MPI_Comm_free_keyval`).
    ///
    /// # Errors
    /// [`Error::Argument`] when it has ended already.
    pub fn end_key<V>(&self, key: Key<V>) -> Result<()> {
        self.handle().with(|engine| Ok(engine.keyvals.free(key.key)?))
    }

    /// Hangs a value on this communicator, in place of the one that is there (`MPI_Comm_set_attr`).
    ///
    /// # Errors
    /// [`Error::Argument`] when the key has ended, or the old value's callback refuses: nothing has changed.
    pub fn set<V: Any + Send + Sync>(&self, key: Key<V>, value: V) -> Result<()> {
        self.change(|keyvals, table| table.set(keyvals, self.core(), key.key, Arc::new(value)))
    }

    /// The value under a key (`MPI_Comm_get_attr`).
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn get<V: Any + Send + Sync>(&self, key: Key<V>) -> Result<Option<Arc<V>>> {
        let value = self
            .handle()
            .with(|engine| Ok(engine.attributes(self.core())?.get(key.key).map(Arc::clone)))?;
        Ok(value.and_then(|value| value.downcast().ok()))
    }

    /// Removes the value under a key (`MPI_Comm_delete_attr`).
    ///
    /// # Errors
    /// [`Error::Argument`] when there is none, or its callback refuses.
    pub fn remove<V>(&self, key: Key<V>) -> Result<()> {
        self.change(|_, table| table.delete(self.core(), key.key))
    }

    /// Changes the table of values, with callbacks outside of the engine.
    fn change(
        &self,
        change: impl FnOnce(
            &Keyvals,
            &mut Attributes,
        ) -> std::result::Result<(), ironweave_core::CoreError>,
    ) -> Result<()> {
        let (keyvals, mut table) = self
            .handle()
            .with(|engine| Ok((engine.keyvals.clone(), engine.attributes(self.core())?.clone())))?;
        change(&keyvals, &mut table)?;
        self.handle().with(|engine| Ok(engine.set_attributes(self.core(), table)?))
    }
}

/// Deletes all values of a communicator that is about to go. Refusals change nothing any more.
pub(crate) fn clear<H: Handle>(handle: &H, comm: CommHandle) {
    let table = handle.with(|engine| {
        let table = engine.attributes(comm)?.clone();
        engine.set_attributes(comm, Attributes::default())?;
        Ok(table)
    });
    if let Ok(mut table) = table {
        let _ = table.clear(comm);
    }
}
