// A plant with equations, for one member: Runge-Kutta steps, noise, observed states and limits, as in envs/ode/rk4.py and
// envs/interface/signals.py. One thread computes them in float64.
//
// The type Plant contains constants that the host writes into the source: STATES, ACTIONS, OBSERVED (number of observed
// states), SATURATES (whether observations are clipped) and CHOICES (whether actions are discrete). The equations are four
// C functions, compiled from the Python functions of the plant. They are linked on a GPU, and called by pointers on the
// host.
#pragma once
#include "random.cuh"

#ifdef __CUDACC__
extern "C" __device__ void plant_rhs(const double* x, const double* u, double* rates);
extern "C" __device__ double plant_reward(const double* x, const double* u, const double* next, int event);
extern "C" __device__ int plant_project(double* x);
extern "C" __device__ int plant_terminated(const double* x, int event);
#else
static void (*plant_rhs)(const double*, const double*, double*);
static double (*plant_reward)(const double*, const double*, const double*, int);
static int (*plant_project)(double*);
static int (*plant_terminated)(const double*, int);
#endif

template <class Plant> struct PlantSettings {
    double initial[Plant::STATES], center[Plant::STATES], scale[Plant::STATES], limit[Plant::STATES];
    double middle[Plant::ACTIONS], half[Plant::ACTIONS];
    double substep, noise;
    int choices[Plant::ACTIONS], observed[Plant::OBSERVED], substeps, steps, returns;
};

// State of an episode. `failed` is set after an action that is NaN.
template <class Plant> struct Episode {
    double state[Plant::STATES], total, reward;
    float observation[Plant::OBSERVED], sensor_noise[Plant::OBSERVED], actuator_noise[Plant::ACTIONS];
    int active, length, failed, terminated;
    unsigned sensed, acted;  // counters of the random numbers used for sensor and actuator noise

    METHOD double score(const PlantSettings<Plant>& settings) const {
        return settings.returns ? total : total / (length > 1 ? length : 1);
    }
};

template <class Plant> struct Simulation {
    const PlantSettings<Plant>& settings;
    Episode<Plant>& episode;
    const Random random;
    const Purpose sensor, actuator;

    METHOD void begin() const {
        for (int i = 0; i < Plant::STATES; ++i) episode.state[i] = settings.initial[i];
        for (int a = 0; a < Plant::ACTIONS; ++a) episode.actuator_noise[a] = 0.0f;
        episode.total = 0.0;
        episode.active = 1, episode.length = episode.failed = episode.terminated = 0;
        sense();
    }

    // Advance by one control step under the commanded `action`. Write the reward, the observation and `active`.
    METHOD void step(const float* action) const {
        double u[Plant::ACTIONS];
        for (int a = 0; a < Plant::ACTIONS; ++a) episode.failed |= action[a] != action[a];
        episode.reward = 0.0;
        if (!episode.failed) {
            for (int a = 0; a < Plant::ACTIONS; ++a) {
                double applied = bounded(action[a], -1.0f, 1.0f);
                if (settings.noise > 0.0) {
                    const double error = settings.noise * random.normal(actuator, episode.acted, a);
                    episode.actuator_noise[a] = (float)error;
                    applied += error;
                    applied = applied < -1.0 ? -1.0 : applied > 1.0 ? 1.0 : applied;
                }
                u[a] = physical(applied, a);
            }
            ++episode.acted;
            advance(u);
            sense();
        }
        ++episode.length;
        if (episode.failed) episode.reward = nan("");
        episode.total += episode.reward;
        episode.active = !episode.terminated && episode.length < settings.steps;
    }

private:
    METHOD double physical(double applied, int a) const {
        if constexpr (!Plant::CHOICES) return settings.middle[a] + settings.half[a] * applied;
        const int last = settings.choices[a] - 1;
        const double level = ceil(0.5 * (applied + 1.0) * last - 0.5);
        return (settings.middle[a] - settings.half[a]) + 2.0 * settings.half[a] * level / last;
    }

    METHOD void advance(const double* u) const {
        double *const x = episode.state, before[Plant::STATES], within[Plant::STATES], slopes[Plant::STATES];
        double rates[Plant::STATES];
        int event = 0;
        for (int i = 0; i < Plant::STATES; ++i) before[i] = x[i];
        for (int k = 0; k < settings.substeps; ++k) {
            for (int i = 0; i < Plant::STATES; ++i) within[i] = x[i], slopes[i] = 0.0;
            for (int stage = 0; stage < 4; ++stage) {
                const double weight = stage == 0 || stage == 3 ? 1.0 : 2.0;
                const double ahead = stage == 2 ? settings.substep : 0.5 * settings.substep;
                plant_rhs(within, u, rates);
                for (int i = 0; i < Plant::STATES; ++i) {
                    slopes[i] += weight * rates[i];
                    within[i] = x[i] + ahead * rates[i];
                }
            }
            for (int i = 0; i < Plant::STATES; ++i) x[i] += settings.substep / 6.0 * slopes[i];
            event |= plant_project(x);
        }
        episode.reward = plant_reward(before, u, x, event);
        episode.terminated = plant_terminated(x, event);
    }

    METHOD void sense() const {
        for (int o = 0; o < Plant::OBSERVED; ++o) {
            const int i = settings.observed[o];
            double seen = (episode.state[i] - settings.center[i]) / settings.scale[i];
            if (Plant::SATURATES && !(fabs(seen) <= settings.limit[i]))
                seen = seen > 0 ? settings.limit[i] : seen < 0 ? -settings.limit[i] : 0.0;
            if (settings.noise > 0.0) {
                const double error = settings.noise * random.normal(sensor, episode.sensed, i);
                episode.sensor_noise[o] = (float)error;
                seen += error;
            }
            episode.observation[o] = (float)seen;
        }
        ++episode.sensed;
    }
};
