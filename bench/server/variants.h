// What the server does for the tuner: it loads variants of a kernel, checks them, and times them on works of their own.
//   {"do":"open","kernel","target","works":[...],"patience"}  -> {}: the works on which variants are timed
//   {"do":"load","file","parameters":{NAME:VALUE}} -> {"variant":NUMBER,"fault"}: checked quickly, and on each work
//   {"do":"prove","variant"}                       -> {"fault"}: checked thoroughly
//   {"do":"choose","work":NUMBER,"variants":[...]} -> {}: these are the subjects of the rounds that follow
// A fault is a sentence, empty where there is none. Checks run in processes of their own, and `patience` is how many
// seconds each may take.
#pragma once

#include "server/serve.h"

#include <cstdint>
#include <memory>

namespace halyard::bench {

class Variants {
public:
    explicit Variants(const nlohmann::json &request);
    ~Variants();

    nlohmann::json load(const nlohmann::json &request);
    nlohmann::json prove(const nlohmann::json &request) const;
    std::vector<Subject> choose(const nlohmann::json &request) const;

private:
    struct Place;    // a work, its memory and a call
    struct Variant;  // a kernel and the shared object that it is in

    std::string kernel_, target_;
    unsigned patience_;
    std::vector<std::unique_ptr<Place>> places_;
    std::vector<std::unique_ptr<Variant>> variants_;

    std::string check(const Variant &variant, std::uint64_t seed, int times) const;
    std::string check_on_works(const Variant &variant);
};

}  // namespace halyard::bench
