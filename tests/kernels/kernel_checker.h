// Calls kernels again and again as the model is called, between guard pages and in a process of their own, until
// something is wrong.
#pragma once

#include "kernels/kernel_calls.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>

/// What two calls made of an operand, if that differs: the first element in words.
inline std::string difference(const Operand &operand, Operand::Image got, Operand::Image want) {
    if (got == want) {
        return "";
    }
    std::vector<std::uint32_t> words[2];
    operand.for_each_element(got, [&](std::uint32_t word) { words[0].push_back(word); });
    operand.for_each_element(want, [&](std::uint32_t word) { words[1].push_back(word); });
    const auto [is, should_be] = std::mismatch(words[0].begin(), words[0].end(), words[1].begin());
    if (is == words[0].end()) {
        return "memory around it is written";
    }
    char text[100];
    std::snprintf(text, sizeof(text), "element %td is %x, but should be %x", is - words[0].begin(), *is, *should_be);
    return text;
}

/// Calls a row's kernel, and its model on images, `n_calls` times or until something is wrong. The first fault in
/// words, or nothing. A crash is a fault like others and names what was tried, and so is taking longer than the limit.
inline std::string fault_of(const KernelRow &row, std::uint64_t seed, int n_calls, unsigned limit_seconds = 0) {
    using Text = char[1000];
    void *const shared = mmap(nullptr, sizeof(Text), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        throw std::bad_alloc();
    }
    auto &text = *static_cast<Text *>(shared);
    const pid_t child = fork();
    if (child == 0) {
        for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) {
            std::signal(signal, SIG_DFL);  // instead of what Catch2 does on a signal
        }
        alarm(limit_seconds);
        Random random(seed);
        for (int n = 0; n < n_calls; n++) {
            Trial trial(row, random, n);
            const std::string told = row.name + ": " + trial.text();
            std::snprintf(text, sizeof(text), "%s", told.c_str());
            const auto got = trial.run(row.kernel, row.rotation.packed), want = trial.run(row.model, false);
            for (std::size_t i = 0; i < got.size(); i++) {
                const Operand &operand = *trial.operands[i];
                if (const std::string what = difference(operand, got[i], want[i]); !what.empty()) {
                    std::snprintf(text, sizeof(text), "%s: %s: %s", told.c_str(), operand.name, what.c_str());
                    _exit(1);
                }
            }
        }
        _exit(0);
    }
    int status = 0;
    const bool ended = child > 0 && waitpid(child, &status, 0) == child;
    const std::string fault = text;
    munmap(shared, sizeof(Text));
    if (!ended) {
        return "no process could be started";
    }
    if (WIFSIGNALED(status)) {
        return fault + (limit_seconds > 0 && WTERMSIG(status) == SIGALRM
                            ? ": takes more than " + std::to_string(limit_seconds) + " seconds"
                            : ": crashes with signal " + std::to_string(WTERMSIG(status)));
    }
    return WEXITSTATUS(status) == 0 ? "" : fault;
}
