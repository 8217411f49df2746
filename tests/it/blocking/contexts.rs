//! Where a thread may wait, and where it may not: in async code every call fails, and does no harm.

use std::{
    thread,
    time::{Duration, Instant},
};

use leasehold::{
    Error,
    blocking::{Client, Guard, Mutex, NamedOwner},
};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    task::{self, coop},
};

use super::{LIMIT, MS, connect, eventually, exists, server, wait_for};
use crate::{checks, support::Server};

/// A client whose lock "n" is held by an owner: all that can be called.
struct Scene {
    server: Server,
    client: Client,
    lock: Mutex<NamedOwner>,
    guard: Guard<NamedOwner>,
}

impl Scene {
    fn set() -> Self {
        let server = server();
        let client = connect(&server);
        let lock = client.mutex("n").owned_by(&client.owner());
        let guard = lock.lock().expect("free");
        Self { server, client, lock, guard }
    }

    /// Makes every call that waits, from async code.
    fn every_call_is_refused(&self) {
        let Self { server, client, lock, guard } = self;
        let other = client.mutex("other");
        refused(Client::connect(&server.url()));
        refused(client.check());
        refused(client.drain(MS));
        refused(client.shutdown());
        for lock in [&other, &client.mutex("n")] {
            refused(lock.lock());
            refused(lock.lock_with_timeout(MS));
            refused(lock.try_lock());
            refused(lock.try_lock_for(Duration::ZERO));
            refused(lock.run(|_| panic!("the body must not run")));
        }
        refused(lock.lock());
        refused(lock.status());
        refused(lock.is_locked());
        refused(lock.holder());
        refused(lock.remaining_ttl());
        refused(lock.force_unlock());
        refused(lock.force_unlock_if(&guard.holder()));
        refused(guard.wait_lost(MS));
        refused(guard.extend(LIMIT));
        // What needs no answer works everywhere.
        assert!(guard.is_held() && guard.remaining() > Duration::ZERO);
        drop(guard.reenter().expect("held"));
        assert_eq!(client.holds().len(), 1);
        // A task that asked in vain still has its budget.
        let mut nobody = std::task::Context::from_waker(std::task::Waker::noop());
        let mut taken: Vec<_> = (0..100).map(|_| coop::poll_proceed(&mut nobody)).collect();
        assert!(taken.iter().all(|unit| unit.is_ready()), "the task's budget is spent");
        while taken.pop().is_some() {}
    }

    /// After that, on a plain thread: nothing has happened.
    fn still_works(self) {
        let Self { server, client, lock, guard } = self;
        assert!(guard.is_held() && lock.is_locked().expect("an answer"));
        assert!(!exists(&server, "other"));
        guard.unlock().expect("held");
        works(&client);
    }
}

#[track_caller]
fn refused<T>(answer: Result<T, Error>) {
    match answer.map(|_| ()) {
        Err(Error::InAsyncContext { .. }) => {}
        other => panic!("not refused: {other:?}"),
    }
}

/// Takes a lock, nests, waits for nobody, and gives back.
fn works(client: &Client) {
    let lock = client.mutex("works");
    let guard = lock.lock().expect("free");
    assert_eq!(lock.lock().expect("re-entered").hold_count(), 2);
    assert_eq!(guard.wait_lost(MS).expect("it may wait here"), None);
    guard.unlock().expect("held");
    assert!(!lock.is_locked().expect("an answer"));
}

fn threaded() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

fn single() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[test]
fn a_call_in_a_task_is_refused() {
    for runtime in [threaded(), single()] {
        let scene = Scene::set();
        let task = runtime.spawn(async move {
            scene.every_call_is_refused();
            task::yield_now().await;
            scene.every_call_is_refused();
            scene
        });
        runtime.block_on(task).expect("no panic").still_works();
    }
}

#[test]
fn a_call_in_the_body_of_block_on_is_refused() {
    for runtime in [threaded(), single()] {
        let scene = Scene::set();
        runtime.block_on(async { scene.every_call_is_refused() });
        runtime.handle().block_on(async { scene.every_call_is_refused() });
        scene.still_works();
    }
}

#[test]
fn a_call_in_the_body_of_tokios_main_is_refused() {
    #[tokio::main]
    async fn threaded(scene: &Scene) {
        scene.every_call_is_refused();
    }
    #[tokio::main(flavor = "current_thread")]
    async fn single(scene: &Scene) {
        scene.every_call_is_refused();
    }
    let scene = Scene::set();
    threaded(&scene);
    single(&scene);
    scene.still_works();
}

#[test]
fn a_call_in_a_local_task_is_refused() {
    let scene = Scene::set();
    let local = task::LocalSet::new();
    let scene = local.block_on(&single(), async {
        let task = async {
            scene.every_call_is_refused();
            scene
        };
        task::spawn_local(task).await.expect("no panic")
    });
    scene.still_works();
}

#[test]
fn a_guard_whose_unlock_is_refused_is_given_back() {
    let Scene { server, client, lock, guard } = Scene::set();
    threaded().block_on(async { refused(guard.unlock()) });
    eventually("given back in the background", || !exists(&server, "n"));
    drop(lock);
    works(&client);
}

#[test]
fn a_plain_thread_may_wait() {
    let server = server();
    works(&connect(&server));
    thread::spawn(move || works(&connect(&server))).join().expect("no panic");
}

#[test]
fn a_thread_that_a_task_started_may_wait() {
    let server = server();
    threaded().block_on(async {
        thread::spawn(move || works(&connect(&server))).join().expect("no panic");
    });
}

#[test]
fn spawn_blocking_may_wait() {
    for runtime in [threaded(), single()] {
        let server = server();
        let call = runtime.spawn_blocking(move || works(&connect(&server)));
        runtime.block_on(call).expect("no panic");
    }
}

#[test]
fn block_in_place_may_wait_and_what_it_blocks_on_may_not() {
    let server = server();
    let runtime = threaded();
    let call = async move {
        let client = task::block_in_place(|| {
            let client = connect(&server);
            works(&client);
            Handle::current().block_on(async { refused(client.mutex("n").lock()) });
            works(&client);
            client
        });
        refused(client.mutex("n").lock());
        (server, client)
    };
    let (server, client) = runtime.block_on(runtime.spawn(call)).expect("no panic");
    works(&client);
    // In the body of `block_on`, too.
    runtime.block_on(async {
        refused(client.mutex("n").lock());
        task::block_in_place(|| works(&client));
        task::yield_now().await;
        refused(client.mutex("n").lock());
        task::block_in_place(|| drop(client));
    });
    drop(server);
}

/// No panic, as tokio's own `block_on` would give.
#[test]
fn where_async_code_cannot_be_told_a_call_waits() {
    let server = server();
    let client = connect(&server);
    for runtime in [threaded(), single()] {
        let called = client.clone();
        let call = runtime.spawn(task::unconstrained(async move { works(&called) }));
        runtime.block_on(call).expect("no panic");
    }
    threaded().block_on(async {
        task::block_in_place(|| works(&client));
        works(&client);
    });
}

/// An unlock lets the other tasks go first, if they take turns. The runtime wakes none of them while it waits in the unlock.
#[test]
fn where_async_code_cannot_be_told_an_unlock_by_turns_ends_too() {
    let server = server();
    let builder = Client::builder().nodes([server.url()]).handoff_window(Duration::from_secs(1));
    let client = builder.connect_blocking().expect("connected");
    for runtime in [threaded(), single()] {
        let guard = client.mutex("n").lock().expect("free");
        let lock = client.mutex("n");
        let (done, is_done) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let by_turns = async move { lock.lock().expect("its turn comes").unlock() };
            done.send(runtime.block_on(runtime.spawn(task::unconstrained(by_turns))))
        });
        eventually("it waits", || client.stats().waiters == 1);
        guard.unlock().expect("held");
        let unlocked = is_done.recv_timeout(LIMIT).expect("it ends");
        unlocked.expect("no panic").expect("held");
    }
}

/// Whoever unparks the thread while it waits here is heard by what parks next.
#[test]
fn a_wait_does_not_take_the_threads_own_wake_up() {
    let server = server();
    let client = connect(&server);
    thread::current().unpark();
    works(&client);
    let began_at = Instant::now();
    thread::park_timeout(LIMIT);
    assert!(began_at.elapsed() < LIMIT, "the wake-up was taken");
}

#[test]
fn a_thread_that_entered_a_runtime_may_wait() {
    for runtime in [threaded(), single()] {
        let server = server();
        let _entered = runtime.enter();
        works(&connect(&server));
    }
}

#[test]
fn a_client_and_a_guard_dropped_in_async_code_leave_nothing_behind() {
    for runtime in [threaded(), single()] {
        let Scene { server, client, lock, guard } = Scene::set();
        let drops = async move {
            drop(client);
            drop(lock);
            task::yield_now().await;
            drop(guard);
        };
        runtime.block_on(runtime.spawn(drops)).expect("no panic");
        wait_for(checks::no_connection_left(&server));
        assert!(!exists(&server, "n"));

        let Scene { server, client, lock, guard } = Scene::set();
        runtime.block_on(async move { drop((guard, lock, client)) });
        wait_for(checks::no_connection_left(&server));
        assert!(!exists(&server, "n"));
    }
}
