//! The choice of what a shard runs on, at run time.
//!
//! Names every backend there is; which of them are in is decided when the program is built.

use std::future::Future;
use std::io;
use std::thread::JoinHandle;

use crate::{ShardSpec, uring};

/// What a shard runs on outside of the simulator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backend {
    /// The default: our own io_uring per shard.
    #[default]
    Uring,
    /// The same executor on glommio, for comparison; in where the feature `glommio` is.
    Glommio,
}

impl Backend {
    pub const ALL: [Backend; 2] = [Backend::Uring, Backend::Glommio];

    pub fn name(self) -> &'static str {
        match self {
            Backend::Uring => "uring",
            Backend::Glommio => "glommio",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|backend| backend.name() == name)
    }

    /// Is it part of this program?
    pub fn is_in(self) -> bool {
        match self {
            Backend::Uring => true,
            Backend::Glommio => cfg!(feature = "glommio"),
        }
    }

    /// Can this process use it? The error says what to change.
    pub fn probe(self) -> io::Result<()> {
        match self {
            Backend::Uring => uring::probe(),
            #[cfg(feature = "glommio")]
            Backend::Glommio => crate::glommio::probe(),
            #[cfg(not(feature = "glommio"))]
            Backend::Glommio => Err(self.absent()),
        }
    }

    /// Runs `main` as a shard on the calling thread, see [`uring::run`].
    pub fn run<F, Fut, T>(self, spec: &ShardSpec, main: F) -> io::Result<T>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = T> + 'static,
        T: 'static,
    {
        match self {
            Backend::Uring => uring::run(spec, main),
            #[cfg(feature = "glommio")]
            Backend::Glommio => crate::glommio::run(spec, main),
            #[cfg(not(feature = "glommio"))]
            Backend::Glommio => Err(self.absent()),
        }
    }

    /// Starts a shard on a thread of its own.
    pub fn spawn_shard<F, Fut, T>(
        self,
        spec: ShardSpec,
        main: F,
    ) -> io::Result<JoinHandle<io::Result<T>>>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        match self {
            Backend::Uring => uring::spawn_shard(spec, main),
            #[cfg(feature = "glommio")]
            Backend::Glommio => crate::glommio::spawn_shard(spec, main),
            #[cfg(not(feature = "glommio"))]
            Backend::Glommio => Err(self.absent()),
        }
    }

    #[cfg(not(feature = "glommio"))]
    fn absent(self) -> io::Error {
        let what = "this program was built without the glommio backend (cargo feature glommio)";
        io::Error::new(io::ErrorKind::Unsupported, what)
    }
}
