//! Tasks, timers, cancellation by drop.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use reactor::sync::Notify;
use reactor::{
    Either, Instant, TimedOut, join_all, now, race, sleep, sleep_until, spawn, timeout, yield_now,
};

use crate::harness::{Dice, Env};

every!(
    outputs_come_back,
    timers_fire_in_order,
    a_dropped_task_stops,
    a_detached_task_goes_on,
    timeouts_and_races,
    many_tasks_and_wakes,
    a_task_may_cancel_itself,
    wakes_from_another_thread_arrive,
    random_numbers_differ
);

const MS: Duration = Duration::from_millis(1);

async fn outputs_come_back(_: Env) {
    let tasks: Vec<_> = (0..100u64).map(|i| spawn(async move { i * i })).collect();
    let outputs = join_all(tasks).await;
    assert!(outputs.iter().enumerate().all(|(i, &o)| o == (i * i) as u64));
}

async fn timers_fire_in_order(env: Env) {
    let fired = Rc::new(RefCell::new(Vec::new()));
    // Far enough away that every task waits before the first one fires.
    let start = now() + 20 * MS;
    let mut dice = Dice::new(env.seed);
    let tasks: Vec<_> = (0..500)
        .map(|_| {
            let deadline = start + Duration::from_micros(dice.below(20_000) as u64);
            let fired = Rc::clone(&fired);
            spawn(async move {
                sleep_until(deadline).await;
                assert!(now() >= deadline, "fired early");
                fired.borrow_mut().push(deadline);
            })
        })
        .collect();
    join_all(tasks).await;
    let fired = fired.borrow();
    assert_eq!(fired.len(), 500);
    // The simulator runs tasks that are ready together in any order.
    let late = |w: &[Instant]| if env.simulated { w[0] > w[1] + MS } else { w[0] > w[1] };
    assert!(!fired.windows(2).any(late), "{fired:?}");
}

async fn a_dropped_task_stops(_: Env) {
    struct Flag(Rc<Cell<bool>>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    let dropped = Rc::new(Cell::new(false));
    let ran_on = Rc::new(Cell::new(false));
    let (flag, ran) = (Flag(Rc::clone(&dropped)), Rc::clone(&ran_on));
    let task = spawn(async move {
        let _flag = flag;
        sleep(5 * MS).await;
        ran.set(true);
    });
    sleep(MS).await;
    drop(task);
    assert!(dropped.get(), "the future is dropped with its task");
    sleep(10 * MS).await;
    assert!(!ran_on.get());
}

async fn a_detached_task_goes_on(_: Env) {
    let done = Notify::new();
    let listener = done.notified();
    spawn(async move {
        sleep(MS).await;
        done.notify_all();
    })
    .detach();
    listener.await;
}

async fn timeouts_and_races(_: Env) {
    assert_eq!(timeout(MS, std::future::pending::<()>()).await, Err(TimedOut));
    assert_eq!(timeout(Duration::MAX, async { 7 }).await, Ok(7));
    let slow = async {
        sleep(50 * MS).await;
        1
    };
    assert_eq!(race(slow, async { 2 }).await, Either::Right(2));
    assert_eq!(race(async { 1 }, async { 2 }).await, Either::Left(1));
}

async fn many_tasks_and_wakes(env: Env) {
    let count = env.rounds(10_000, 500);
    let turn = Rc::new(Cell::new(0));
    let changed = Notify::new();
    let tasks: Vec<_> = (0..count)
        .map(|i| {
            let (turn, changed) = (Rc::clone(&turn), changed.clone());
            spawn(async move {
                loop {
                    let listener = changed.notified();
                    // Ten at a time, so that each change wakes many in vain.
                    if turn.get() / 10 >= i / 10 {
                        break;
                    }
                    if turn.get() / 10 + 5 < i / 10 {
                        sleep(MS).await;
                        continue;
                    }
                    listener.await;
                }
                turn.set(turn.get() + 1);
                changed.notify_all();
                yield_now().await;
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    assert_eq!(turn.get(), count);
}

async fn a_task_may_cancel_itself(_: Env) {
    let own: Rc<RefCell<Option<reactor::Task<()>>>> = Rc::default();
    let slot = Rc::clone(&own);
    let after = Rc::new(Cell::new(false));
    let reached = Rc::clone(&after);
    *own.borrow_mut() = Some(spawn(async move {
        let me = slot.borrow_mut().take();
        drop(me);
        yield_now().await;
        reached.set(true);
    }));
    sleep(MS).await;
    assert!(!after.get(), "it ran past the point where it was cancelled");
}

async fn wakes_from_another_thread_arrive(env: Env) {
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};
    use std::task::{Poll, Waker};
    if env.simulated {
        return; // Other threads have no place in virtual time.
    }
    for round in 0..2_000u32 {
        let ready = Arc::new(AtomicBool::new(false));
        let waker: Arc<Mutex<Option<Waker>>> = Arc::default();
        let (set, theirs) = (Arc::clone(&ready), Arc::clone(&waker));
        let thread = std::thread::spawn(move || {
            for _ in 0..round % 7 * 50 {
                std::hint::spin_loop();
            }
            set.store(true, Ordering::SeqCst);
            let waker = theirs.lock().unwrap().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        });
        let wait = poll_fn(|cx| {
            *waker.lock().unwrap() = Some(cx.waker().clone());
            if ready.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        });
        timeout(Duration::from_secs(20), wait).await.expect("the wake was lost");
        thread.join().unwrap();
    }
}

async fn random_numbers_differ(_: Env) {
    let mut all: Vec<u64> = (0..1000).map(|_| reactor::random_u64()).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 1000);
    let mut odd = [0; 13];
    reactor::fill_random(&mut odd);
    assert!(odd.iter().any(|&b| b != 0));
    assert!(reactor::wall_clock_ms() > 1_700_000_000_000);
}
