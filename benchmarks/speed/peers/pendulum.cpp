// One learner of RLtools on its own pendulum: how fast it learns, and how well.
//
// REPLAYBENCH_LEARNER is a namespace of the library, sac or td3; REPLAYBENCH_BATCH and REPLAYBENCH_UNITS are the sizes of
// batches and of each of two hidden layers.
//   pendulum rate SEED      reads numbers of steps from standard input, line by line, does as many, one update each, and
//                           answers with the CPU seconds that took; the warm-up without updates is over before
//   pendulum learn SEED N   does N steps; writes `steps seconds return` of each episode that ended, seconds of the CPU

#define RL_TOOLS_NN_DISABLE_GENERIC_FORWARD_BACKWARD
#include <rl_tools/operations/cpu_mux.h>
#include <rl_tools/nn/optimizers/adam/instance/operations_generic.h>
#include <rl_tools/nn/operations_cpu_mux.h>
#include <rl_tools/nn/layers/sample_and_squash/operations_generic.h>
#include <rl_tools/nn/layers/td3_sampling/operations_generic.h>
#include <rl_tools/rl/environments/pendulum/operations_cpu.h>
#include <rl_tools/nn_models/mlp/operations_generic.h>
#include <rl_tools/nn_models/random_uniform/operations_generic.h>
#include <rl_tools/nn_models/sequential/operations_generic.h>
#include <rl_tools/nn/optimizers/adam/operations_generic.h>
#include <rl_tools/rl/algorithms/sac/loop/core/config.h>
#include <rl_tools/rl/algorithms/td3/loop/core/config.h>
#include <rl_tools/rl/algorithms/sac/loop/core/operations_generic.h>
#include <rl_tools/rl/algorithms/td3/loop/core/operations_generic.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iostream>

namespace rlt = rl_tools;
namespace algorithm = rlt::rl::algorithms::REPLAYBENCH_LEARNER;

using Device = rlt::devices::DEVICE_FACTORY<>;
using Random = Device::SPEC::RANDOM::ENGINE<>;
using Types = rlt::numeric_types::Policy<float>;
using Index = Device::index_t;
using Equations = rlt::rl::environments::pendulum::DefaultParameters<float>;
using Plant = rlt::rl::environments::Pendulum<rlt::rl::environments::pendulum::Specification<float, Index, Equations>>;

template <typename Defaults>
struct Batches: Defaults{
    static constexpr Index ACTOR_BATCH_SIZE = REPLAYBENCH_BATCH;
    static constexpr Index CRITIC_BATCH_SIZE = REPLAYBENCH_BATCH;
};
struct sac_settings: Batches<rlt::rl::algorithms::sac::DefaultParameters<Types, Index, Plant::ACTION_DIM>>{};
struct td3_settings: Batches<rlt::rl::algorithms::td3::DefaultParameters<Types, Index>>{};

struct Settings: algorithm::loop::core::DefaultParameters<Types, Index, Plant>{
    using SAC_PARAMETERS = sac_settings;
    using TD3_PARAMETERS = td3_settings;
    static constexpr Index STEP_LIMIT = Index(1) << 40;
    static constexpr Index REPLAY_BUFFER_CAP = 10000;
    static constexpr Index N_WARMUP_STEPS = REPLAYBENCH_BATCH > 100 ? REPLAYBENCH_BATCH : 100;
    static constexpr Index N_WARMUP_STEPS_CRITIC = N_WARMUP_STEPS;
    static constexpr Index N_WARMUP_STEPS_ACTOR = N_WARMUP_STEPS;
    static constexpr Index ACTOR_NUM_LAYERS = 3;
    static constexpr Index ACTOR_HIDDEN_DIM = REPLAYBENCH_UNITS;
    static constexpr Index CRITIC_NUM_LAYERS = 3;
    static constexpr Index CRITIC_HIDDEN_DIM = REPLAYBENCH_UNITS;
};
using Loop = algorithm::loop::core::Config<Types, Index, Random, Plant, Settings, algorithm::loop::core::ConfigApproximatorsMLP>;

int main(int count, char** words){
    if(count < 3){
        std::cerr << "usage: pendulum rate SEED | pendulum learn SEED STEPS\n";
        return 2;
    }
    Device device;
    typename Loop::template State<Loop> state;
    rlt::malloc(device, state);
    rlt::init(device, state, Index(std::atoll(words[2])));
    std::clock_t began = std::clock();
    auto seconds = [&began]{ return double(std::clock() - began) / CLOCKS_PER_SEC; };
    if(std::strcmp(words[1], "rate") == 0){
        for(Index i = 0; i < Settings::N_WARMUP_STEPS; i++) rlt::step(device, state);
        for(Index steps; std::cin >> steps;){
            began = std::clock();
            for(Index i = 0; i < steps; i++) rlt::step(device, state);
            std::cout << seconds() << std::endl;
        }
    }
    else{
        auto& stats = rlt::get(state.off_policy_runner.episode_stats, 0, 0);
        Index told = 0;
        for(Index i = 1, steps = Index(std::atoll(words[3])); i <= steps; i++){
            rlt::step(device, state);
            for(; told + 1 < Index(stats.next_episode_i); told++) // its count begins with 1
                std::cout << i << ' ' << seconds() << ' ' << rlt::get(stats.returns, told, 0) << '\n';
        }
        std::cout << Index(std::atoll(words[3])) << ' ' << seconds() << " end" << std::endl;
    }
    rlt::free(device, state);
    return 0;
}
